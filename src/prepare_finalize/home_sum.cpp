#include "prepare_finalize/home_sum.hpp"

#include <algorithm>

#include "prepare_finalize/parallel_rows.hpp"

namespace epmoe {
namespace {

/// Addends of token t in the order in which they are added: [begin[t], begin[t + 1]); null ones are skipped.
struct Addends {
  std::vector<std::int64_t> begin;
  std::vector<const std::byte*> rows;
};

Addends by_rank(const ExchangePlan& plan, std::int64_t tokens,
                const std::function<const std::byte*(int, std::int64_t)>& home_row) {
  Addends addends;
  addends.begin.assign(static_cast<std::size_t>(tokens) + 1, 0);
  for (const auto t : plan.row_token) ++addends.begin[static_cast<std::size_t>(t) + 1];
  for (std::size_t t = 1; t < addends.begin.size(); ++t) addends.begin[t] += addends.begin[t - 1];
  addends.rows.resize(plan.row_token.size());
  auto next = addends.begin;
  for (int rank = 0; rank + 1 < static_cast<int>(plan.rank_begin.size()); ++rank)
    for (std::int64_t i = 0; i < plan.rows_to(rank); ++i) {
      const auto row = static_cast<std::size_t>(plan.rank_begin[static_cast<std::size_t>(rank)] + i);
      const auto t = static_cast<std::size_t>(plan.row_token[row]);
      addends.rows[static_cast<std::size_t>(next[t]++)] = home_row(rank, i);
    }
  return addends;
}

Addends by_k(const ExchangePlan& plan, std::int64_t tokens, std::int64_t top_k,
             const std::function<const std::byte*(int, std::int64_t)>& home_row) {
  Addends addends;
  for (std::int64_t t = 0; t <= tokens; ++t) addends.begin.push_back(t * top_k);
  addends.rows.assign(static_cast<std::size_t>(tokens * top_k), nullptr);
  for (int rank = 0; rank + 1 < static_cast<int>(plan.rank_begin.size()); ++rank) {
    const auto first = static_cast<std::size_t>(plan.rank_begin[static_cast<std::size_t>(rank)]);
    for (std::int64_t i = 0; i < plan.rows_to(rank); ++i) {
      const auto row = first + static_cast<std::size_t>(i);
      for (auto e = plan.row_entry_begin[row]; e < plan.row_entry_begin[row + 1]; ++e)
        addends
            .rows[static_cast<std::size_t>(plan.row_token[row] * top_k + plan.entries[static_cast<std::size_t>(e)].k)] =
            home_row(rank, e - plan.row_entry_begin[first]);
    }
  }
  return addends;
}

}  // namespace

void sum_home_rows(const ExchangePlan& plan, const CombineRowFormat& format, bool per_entry, std::int64_t top_k,
                   const std::function<const std::byte*(int, std::int64_t)>& home_row,
                   TypedView<float, Token, Hidden> y, const ExecutionContext& context) {
  const auto addends = per_entry ? by_k(plan, y.rows, top_k, home_row) : by_rank(plan, y.rows, home_row);
  for_row_blocks(context, y.rows, [&](std::int64_t first, std::int64_t past) {
    for (auto t = first; t < past; ++t) {
      auto* out = y.row(t);
      std::fill(out, out + y.cols, 0.0F);
      const auto n = static_cast<std::size_t>(t);
      for (auto a = addends.begin[n]; a < addends.begin[n + 1]; ++a) {
        const auto* row = addends.rows[static_cast<std::size_t>(a)];
        if (row != nullptr) format.decode_add(row, out);
      }
    }
  });
}

}  // namespace epmoe
