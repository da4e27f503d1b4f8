#pragma once
#include <fmt/format.h>

#include <string>
#include <vector>

namespace epmoe::comm {

/// "rank 3", "ranks 1, 3"; long lists are cut.
inline std::string rank_list(const std::vector<int>& ranks) {
  constexpr std::size_t kMost = 16;
  if (ranks.empty()) return "its peers";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size() && i < kMost; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > kMost) text += fmt::format(" and {} more", ranks.size() - kMost);
  return text;
}

}  // namespace epmoe::comm
