// Start-up checks whose outcome is the same on all ranks.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "comm/rank_list.hpp"
#include "epmoe/comm/communicator.hpp"

namespace epmoe::comm {
namespace {

void put(std::vector<std::byte>& out, const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  const auto* raw = reinterpret_cast<const std::byte*>(&size);
  out.insert(out.end(), raw, raw + sizeof(size));
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), data, data + text.size());
}

std::vector<std::string> texts(const std::vector<std::byte>& bytes) {
  std::vector<std::string> result;
  std::size_t at = 0;
  while (at + sizeof(std::uint32_t) <= bytes.size()) {
    std::uint32_t size = 0;
    std::memcpy(&size, bytes.data() + at, sizeof(size));
    at += sizeof(size);
    result.emplace_back(reinterpret_cast<const char*>(bytes.data()) + at, size);
    at += size;
  }
  return result;
}

std::vector<std::byte> describe(const std::exception_ptr& error) {
  std::vector<std::byte> out;
  const auto add = [&](ErrorCode code, const std::string& phase, const std::string& what) {
    put(out, std::to_string(static_cast<int>(code)));
    put(out, phase);
    put(out, what);
  };
  if (!error) return out;
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    add(e.code(), e.phase(), e.what());
  } catch (const std::exception& e) {
    add(ErrorCode::internal, {}, e.what());
  } catch (...) {
    add(ErrorCode::internal, {}, "unknown exception");
  }
  return out;
}

}  // namespace

void agree_or_throw(const Communicator& comm, std::exception_ptr mine, const ExecutionContext& context,
                    const std::string& what) {
  const auto all = comm.all_gather(describe(mine), context, what);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    const auto parts = texts(all[r]);
    const std::string prefix = fmt::format("rank {}: ", r);
    const bool named = parts[2].compare(0, prefix.size(), prefix) == 0;
    throw_error(static_cast<ErrorCode>(std::stoi(parts[0])), named ? parts[2] : prefix + parts[2],
                static_cast<int>(r), parts[1]);
  }
}

void check_same(const Communicator& comm, std::span<const std::pair<std::string, std::string>> fields,
                const ExecutionContext& context, const std::string& what) {
  std::vector<std::byte> mine;
  for (const auto& [field, value] : fields) {
    put(mine, field);
    put(mine, value);
  }
  const auto all = comm.all_gather(mine, context, what);
  if (std::all_of(all.begin(), all.end(), [&](const auto& other) { return other == all[0]; })) return;

  std::vector<std::vector<std::string>> parsed;
  for (const auto& bytes : all) parsed.push_back(texts(bytes));
  // The first position, in field order, at which any rank differs from rank 0.
  std::size_t position = 0;
  const auto at = [&](std::size_t r) { return position < parsed[r].size() ? parsed[r][position] : "(none)"; };
  const auto differs = [&] {
    for (std::size_t r = 1; r < parsed.size(); ++r)
      if (at(r) != at(0)) return true;
    return false;
  };
  while (!differs()) ++position;

  std::vector<std::pair<std::string, std::vector<int>>> groups;  // value → ranks, in order of the lowest rank
  for (std::size_t r = 0; r < parsed.size(); ++r) {
    auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == at(r); });
    if (found == groups.end()) found = groups.insert(groups.end(), {at(r), {}});
    found->second.push_back(static_cast<int>(r));
  }
  const bool is_value = position % 2 == 1;
  std::string text = fmt::format("{}: {} differs between ranks:", what,
                                 is_value ? parsed[0][position - 1] : std::string("the list of settings"));
  for (std::size_t g = 0; g < groups.size(); ++g)
    text += fmt::format("{} {} on {}", g == 0 ? "" : ",", groups[g].first, rank_list(groups[g].second));
  throw ConfigError(text, groups[1].second[0], what);
}

}  // namespace epmoe::comm
