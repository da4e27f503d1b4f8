#include "epmoe/core/placement.hpp"

#include <fmt/format.h>

#include "epmoe/core/error.hpp"

namespace epmoe {
namespace {

void check_size(std::int64_t experts, int ranks) {
  if (experts < 1) throw ConfigError(fmt::format("placement: experts is {}, wanted 1 or more", experts));
  if (ranks < 1) throw ConfigError(fmt::format("placement: ranks is {}, wanted 1 or more", ranks));
}

std::vector<std::int32_t> iota(std::int64_t n) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
  return values;
}

}  // namespace

std::shared_ptr<const Placement> Placement::linear(std::int64_t experts, int ranks, std::uint64_t epoch) {
  check_size(experts, ranks);
  const std::int64_t each = experts / ranks, more = experts % ranks;
  std::vector<std::int32_t> owner;
  owner.reserve(static_cast<std::size_t>(experts));
  for (int rank = 0; rank < ranks; ++rank)
    owner.insert(owner.end(), static_cast<std::size_t>(each + (rank < more ? 1 : 0)), rank);
  return table(experts, ranks, owner, iota(experts), epoch);
}

std::shared_ptr<const Placement> Placement::round_robin(std::int64_t experts, int ranks, std::uint64_t epoch) {
  check_size(experts, ranks);
  auto owner = iota(experts);
  for (auto& rank : owner) rank %= ranks;
  return table(experts, ranks, owner, iota(experts), epoch);
}

std::shared_ptr<const Placement> Placement::table(std::int64_t experts, int ranks, std::span<const std::int32_t> owner,
                                                  std::span<const std::int32_t> logical, std::uint64_t epoch) {
  check_size(experts, ranks);
  if (owner.size() != logical.size())
    throw ConfigError(
        fmt::format("placement: {} owners and {} experts, wanted one of each per slot", owner.size(), logical.size()));
  std::shared_ptr<Placement> placement(new Placement);
  auto& p = *placement;
  p.epoch_ = epoch;
  p.slots_.reserve(owner.size());
  p.local_.resize(static_cast<std::size_t>(ranks));
  std::vector<std::vector<std::int32_t>> holders(static_cast<std::size_t>(experts));  // physical slots per expert
  for (std::size_t i = 0; i < owner.size(); ++i) {
    if (owner[i] < 0 || owner[i] >= ranks)
      throw ConfigError(fmt::format("placement: slot {} has owner {}, wanted a rank in [0, {})", i, owner[i], ranks));
    if (logical[i] < 0 || logical[i] >= experts)
      throw ConfigError(fmt::format("placement: slot {} has expert {}, wanted one in [0, {})", i, logical[i], experts));
    auto& holder = holders[static_cast<std::size_t>(logical[i])];
    for (const std::int32_t other : holder)
      if (p.slots_[static_cast<std::size_t>(other)].rank == owner[i])
        throw ConfigError(
            fmt::format("placement: slots {} and {} both hold expert {} on rank {}, wanted replicas on "
                        "different ranks",
                        other, i, logical[i], owner[i]));
    auto& local = p.local_[static_cast<std::size_t>(owner[i])];
    p.slots_.push_back({owner[i], static_cast<std::int32_t>(local.size()), logical[i], 0});
    local.push_back(static_cast<std::int32_t>(i));
    holder.push_back(static_cast<std::int32_t>(i));
  }
  p.replica_begin_.push_back(0);
  for (std::size_t e = 0; e < holders.size(); ++e) {
    if (holders[e].empty()) throw ConfigError(fmt::format("placement: expert {} of {} has no owner", e, experts));
    p.replicas_.insert(p.replicas_.end(), holders[e].begin(), holders[e].end());
    p.replica_begin_.push_back(static_cast<std::int64_t>(p.replicas_.size()));
  }
  return placement;
}

std::uint64_t Placement::hash() const {
  std::uint64_t state = 0xcbf29ce484222325ULL;  // FNV-1a, a byte at a time
  const auto mix = [&state](std::uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      state ^= (value >> (8 * byte)) & 0xffU;
      state *= 0x100000001b3ULL;
    }
  };
  mix(epoch_);
  mix(static_cast<std::uint64_t>(experts()));
  mix(static_cast<std::uint64_t>(ranks()));
  for (const Slot& slot : slots_) {
    mix(static_cast<std::uint64_t>(slot.rank));
    mix(static_cast<std::uint64_t>(slot.logical_expert));
    mix(static_cast<std::uint64_t>(slot.shard));
  }
  return state;
}

}  // namespace epmoe
