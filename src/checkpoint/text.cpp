#include "checkpoint/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace epmoe::checkpoint {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 160;
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    else
      out += c;
  }
  return out + (text.size() > kShown ? "…\"" : "\"");
}

std::string shape_text(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string list_text(const std::vector<std::string>& items, std::size_t shown) {
  const auto first = std::span(items).first(std::min(items.size(), shown));
  std::string out = fmt::format("{}", fmt::join(first, ", "));
  if (items.size() > shown) out += fmt::format(" and {} more", items.size() - shown);
  return out;
}

std::string count_text(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

void fail(const std::filesystem::path& file, const std::string& what) {
  throw CheckpointError(fmt::format("{}: {}", file.string(), what));
}

void fail(const std::filesystem::path& file, std::string_view tensor, const std::string& what) {
  throw CheckpointError(fmt::format("{}: tensor {}: {}", file.string(), in_quotes(tensor), what));
}

}  // namespace epmoe::checkpoint
