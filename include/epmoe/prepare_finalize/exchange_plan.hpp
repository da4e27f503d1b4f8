#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "epmoe/core/stage_data.hpp"
#include "epmoe/quantize/row_format.hpp"

/// Who sends which token where: pure arithmetic over ids and placement, no communication, tested for 1024 ranks in
/// one process. Local, thread-safe.
namespace epmoe {

/// Each token once per destination rank that owns at least one of its experts; stable (destination, token) order.
struct ExchangePlan {
  std::vector<std::int64_t> rank_begin;       ///< [ranks + 1] into row_token: rows for each destination
  std::vector<std::int64_t> row_token;        ///< [rows] token of this rank
  std::vector<std::int64_t> row_entry_begin;  ///< [rows + 1] into entries
  std::vector<WireEntry> entries;             ///< [entries] ascending k inside a row
  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(row_token.size()); }
  [[nodiscard]] std::int64_t rows_to(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return rank_begin[r + 1] - rank_begin[r];
  }
};

/// First id that is neither kNoExpert nor in [0, experts), if any.
struct BadId {
  std::int64_t row;
  std::int64_t k;
  std::int32_t value;
};
std::optional<BadId> find_bad_id(const Routing& routing, std::int64_t experts);

/// Ids must be good. `global_first_token` picks replicas.
ExchangePlan plan_exchange(const Routing& routing, const Placement& placement, std::int64_t global_first_token);

/// Rows a source may send a peer in one message: min(max_tokens, max(1.25 x expected rows, 1 MiB of rows), budget /
/// (ranks x slots x row bytes)), at least 1. Where memory is not at stake, skewed routing costs no second round trip.
/// The same on both ends, since every argument is agreed.
std::int64_t rows_per_message(const StepPlan& plan, std::int64_t experts, std::int64_t top_k,
                              std::int64_t owned_by_destination, std::int64_t budget_bytes, int ranks, int slots,
                              std::int64_t row_bytes);

/// Part `part` of `parts` of `tokens`: the first (tokens mod parts) parts get one more.
struct TokenRange {
  std::int64_t begin = 0, count = 0;
};
TokenRange token_slice(std::int64_t tokens, std::int64_t part, std::int64_t parts);
/// The plan of one slice of every rank's tokens.
StepPlan slice_plan(const StepPlan& plan, std::int64_t part, std::int64_t parts);

}  // namespace epmoe
