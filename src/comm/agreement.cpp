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
    const std::size_t length = std::min<std::size_t>(size, bytes.size() - at);
    result.emplace_back(reinterpret_cast<const char*>(bytes.data()) + at, length);
    at += length;
  }
  return result;
}

/// Every rank's texts. Each message says what its rank is doing, so that ranks that do different things find out.
std::vector<std::vector<std::string>> exchange(const Communicator& comm, const std::string& doing,
                                               const std::vector<std::string>& mine, const ExecutionContext& context,
                                               const std::string& what) {
  std::vector<std::byte> bytes;
  put(bytes, doing);
  for (const auto& text : mine) put(bytes, text);
  std::vector<std::vector<std::string>> all;
  for (const auto& other : comm.all_gather(bytes, context, what)) all.push_back(texts(other));
  const auto doing_of = [&](std::size_t r) { return all[r].empty() ? "another call" : all[r].front(); };
  for (std::size_t r = 1; r < all.size(); ++r)
    if (doing_of(r) != doing_of(0))
      throw CommError(fmt::format("rank {}: found in \"{}\", wanted in \"{}\" as rank 0", r, doing_of(r), doing_of(0)),
                      static_cast<int>(r), what);
  for (auto& other : all) other.erase(other.begin());
  return all;
}

std::vector<std::string> describe(const std::exception_ptr& error) {
  std::vector<std::string> out;
  const auto add = [&](ErrorCode code, const std::string& phase, const std::string& what) {
    out = {std::to_string(static_cast<int>(code)), phase, what};
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
  const auto all = exchange(comm, what + ": did all succeed?", describe(mine), context, what);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].size() != 3) continue;
    const std::string prefix = fmt::format("rank {}: ", r);
    const bool named = all[r][2].compare(0, prefix.size(), prefix) == 0;
    throw_error(static_cast<ErrorCode>(std::stoi(all[r][0])), named ? all[r][2] : prefix + all[r][2],
                static_cast<int>(r), all[r][1]);
  }
}

void check_same(const Communicator& comm, std::span<const std::pair<std::string, std::string>> fields,
                const ExecutionContext& context, const std::string& what) {
  std::vector<std::string> mine;
  for (const auto& [field, value] : fields) {
    mine.push_back(field);
    mine.push_back(value);
  }
  const auto all = exchange(comm, what + ": are all settings equal?", mine, context, what);
  if (std::all_of(all.begin(), all.end(), [&](const auto& other) { return other == all[0]; })) return;

  // The first position, in field order, at which any rank differs from rank 0.
  std::size_t position = 0;
  const auto at = [&](std::size_t r) { return position < all[r].size() ? all[r][position] : "(none)"; };
  const auto differs = [&] {
    for (std::size_t r = 1; r < all.size(); ++r)
      if (at(r) != at(0)) return true;
    return false;
  };
  while (!differs()) ++position;

  std::vector<std::pair<std::string, std::vector<int>>> groups;  // value → ranks, in order of the lowest rank
  for (std::size_t r = 0; r < all.size(); ++r) {
    auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == at(r); });
    if (found == groups.end()) found = groups.insert(groups.end(), {at(r), {}});
    found->second.push_back(static_cast<int>(r));
  }
  const bool is_value = position % 2 == 1;
  std::string text = fmt::format("{}: {} differs between ranks:", what,
                                 is_value ? all[0][position - 1] : std::string("the list of settings"));
  for (std::size_t g = 0; g < groups.size(); ++g)
    text += fmt::format("{} {} on {}", g == 0 ? "" : ",", groups[g].first, rank_list(groups[g].second));
  throw ConfigError(text, groups[1].second[0], what);
}

}  // namespace epmoe::comm
