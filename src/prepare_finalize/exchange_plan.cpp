#include "epmoe/prepare_finalize/exchange_plan.hpp"

#include <algorithm>

namespace epmoe {
namespace {

/// Receive memory below this is not worth a second round trip, however few rows are expected.
constexpr std::int64_t kWorthSavingBytes = 1LL << 20;

/// How many of `tokens` choose at least one of `owned` experts when each picks `top_k` distinct ones of `experts`
/// evenly. Only + - * /, so every host gets the same number.
double expected_rows(std::int64_t tokens, std::int64_t experts, std::int64_t top_k, std::int64_t owned) {
  double missed = 1.0;
  for (std::int64_t i = 0; i < top_k; ++i) {
    const auto others = experts - owned - i;
    if (others <= 0) return static_cast<double>(tokens);
    missed *= static_cast<double>(others) / static_cast<double>(experts - i);
  }
  return static_cast<double>(tokens) * (1.0 - missed);
}

}  // namespace

std::optional<BadId> find_bad_id(const Routing& routing, std::int64_t experts) {
  for (std::int64_t t = 0; t < routing.tokens(); ++t) {
    const auto* ids = routing.ids.row(t);
    for (std::int64_t k = 0; k < routing.top_k(); ++k)
      if (ids[k] != kNoExpert && (ids[k] < 0 || ids[k] >= experts)) return BadId{t, k, ids[k]};
  }
  return std::nullopt;
}

ExchangePlan plan_exchange(const Routing& routing, const Placement& placement, std::int64_t global_first_token) {
  const auto ranks = static_cast<std::size_t>(placement.ranks());
  const auto tokens = routing.tokens();
  const auto top_k = routing.top_k();
  std::vector<std::int64_t> last_token(ranks, -1);  // last token that has a row for the rank
  std::vector<std::int64_t> rows(ranks, 0), entries(ranks, 0);
  std::vector<std::int32_t> physical(static_cast<std::size_t>(tokens * top_k), kNoExpert);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto* ids = routing.ids.row(t);
    for (std::int64_t k = 0; k < top_k; ++k) {
      if (ids[k] == kNoExpert) continue;
      const auto p = placement.physical(ids[k], static_cast<std::uint64_t>(global_first_token + t));
      physical[static_cast<std::size_t>(t * top_k + k)] = p;
      const auto r = static_cast<std::size_t>(placement.slot(p).rank);
      ++entries[r];
      if (last_token[r] != t) {
        last_token[r] = t;
        ++rows[r];
      }
    }
  }

  ExchangePlan plan;
  plan.rank_begin.assign(ranks + 1, 0);
  std::vector<std::int64_t> next_row(ranks, 0), next_entry(ranks, 0);
  std::int64_t all_entries = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    next_row[r] = plan.rank_begin[r];
    next_entry[r] = all_entries;
    plan.rank_begin[r + 1] = plan.rank_begin[r] + rows[r];
    all_entries += entries[r];
  }
  const auto all_rows = static_cast<std::size_t>(plan.rank_begin[ranks]);
  plan.row_token.resize(all_rows);
  plan.row_entry_begin.resize(all_rows + 1);
  plan.row_entry_begin[all_rows] = all_entries;
  plan.entries.resize(static_cast<std::size_t>(all_entries));
  std::fill(last_token.begin(), last_token.end(), -1);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto* weights = routing.weights.row(t);
    for (std::int64_t k = 0; k < top_k; ++k) {
      const auto p = physical[static_cast<std::size_t>(t * top_k + k)];
      if (p == kNoExpert) continue;
      const auto& slot = placement.slot(p);
      const auto r = static_cast<std::size_t>(slot.rank);
      if (last_token[r] != t) {
        last_token[r] = t;
        const auto row = static_cast<std::size_t>(next_row[r]++);
        plan.row_token[row] = t;
        plan.row_entry_begin[row] = next_entry[r];
      }
      plan.entries[static_cast<std::size_t>(next_entry[r]++)] = {p, static_cast<std::uint16_t>(k),
                                                                 static_cast<std::uint16_t>(slot.shard), weights[k]};
    }
  }
  return plan;
}

std::int64_t rows_per_message(const StepPlan& plan, std::int64_t experts, std::int64_t top_k,
                              std::int64_t owned_by_destination, std::int64_t budget_bytes, int ranks, int slots,
                              std::int64_t row_bytes) {
  const auto max_tokens = plan.max_tokens();
  const auto expected = 1.25 * expected_rows(max_tokens, experts, top_k, std::min(owned_by_destination, experts));
  const auto useful = std::max(static_cast<std::int64_t>(expected) + 1, kWorthSavingBytes / row_bytes);
  const auto affordable = budget_bytes / (static_cast<std::int64_t>(ranks) * slots * row_bytes);
  return std::max<std::int64_t>(1, std::min({max_tokens, useful, affordable}));
}

TokenRange token_slice(std::int64_t tokens, std::int64_t part, std::int64_t parts) {
  const auto base = tokens / parts;
  const auto longer = tokens % parts;
  return {part * base + std::min(part, longer), base + (part < longer ? 1 : 0)};
}

StepPlan slice_plan(const StepPlan& plan, std::int64_t part, std::int64_t parts) {
  auto slice = plan;
  for (auto& tokens : slice.tokens) tokens = token_slice(tokens, part, parts).count;
  return slice;
}

}  // namespace epmoe
