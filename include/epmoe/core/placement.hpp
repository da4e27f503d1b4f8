#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Which rank owns which expert. Immutable and shared; a new placement is a new object with a higher epoch.
namespace epmoe {

inline constexpr std::int32_t kNoExpert = -1;

class Placement {
 public:
  struct Slot {
    std::int32_t rank = 0;        ///< owner, a rank of the expert group
    std::int32_t local_slot = 0;  ///< index into the owner's ExpertSlots
    std::int32_t logical_expert = 0;
    std::int32_t shard = 0;  ///< tensor-parallel part of the expert, 0 today
  };

  /// Consecutive experts per rank; the first (experts % ranks) ranks own one more.
  static std::shared_ptr<const Placement> linear(std::int64_t experts, int ranks, std::uint64_t epoch = 0);
  /// Expert e on rank e % ranks.
  static std::shared_ptr<const Placement> round_robin(std::int64_t experts, int ranks, std::uint64_t epoch = 0);
  /// `owner[physical]` = rank and `logical[physical]` = expert; an expert may appear more than once (replicas),
  /// on different ranks. Throws ConfigError naming slot, value and range, or an expert that no rank owns.
  static std::shared_ptr<const Placement> table(std::int64_t experts, int ranks, std::span<const std::int32_t> owner,
                                                std::span<const std::int32_t> logical, std::uint64_t epoch = 0);

  [[nodiscard]] std::int64_t experts() const { return static_cast<std::int64_t>(replica_begin_.size()) - 1; }
  [[nodiscard]] int ranks() const { return static_cast<int>(local_.size()); }
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  [[nodiscard]] std::int64_t physical_slots() const { return static_cast<std::int64_t>(slots_.size()); }
  [[nodiscard]] const Slot& slot(std::int32_t physical) const { return slots_[static_cast<std::size_t>(physical)]; }
  /// Physical slots that hold a logical expert, ascending.
  [[nodiscard]] std::span<const std::int32_t> replicas(std::int32_t logical) const {
    const auto e = static_cast<std::size_t>(logical);
    return {replicas_.data() + replica_begin_[e], static_cast<std::size_t>(replica_begin_[e + 1] - replica_begin_[e])};
  }
  /// Physical slots of a rank in local-slot order.
  [[nodiscard]] std::span<const std::int32_t> local_slots(int rank) const {
    return local_[static_cast<std::size_t>(rank)];
  }
  /// The replica that serves a token: a fixed function of the token's index in the whole step (vLLM's multiplicative
  /// hash, 2654435769), so every rank and every rank count gives the same answer.
  [[nodiscard]] std::int32_t physical(std::int32_t logical, std::uint64_t global_token) const {
    const auto r = replicas(logical);
    if (r.size() == 1) return r[0];
    const auto hash = static_cast<std::uint32_t>(global_token * 2654435769ULL);
    return r[hash % r.size()];
  }
  /// Equal on all ranks for equal placements; compared when a group starts.
  [[nodiscard]] std::uint64_t hash() const;

 private:
  Placement() = default;
  std::uint64_t epoch_ = 0;
  std::vector<Slot> slots_;                       // [physical]
  std::vector<std::int64_t> replica_begin_;       // [experts + 1]
  std::vector<std::int32_t> replicas_;            // physical ids, grouped by logical expert
  std::vector<std::vector<std::int32_t>> local_;  // [ranks][local slot] = physical
};

}  // namespace epmoe
