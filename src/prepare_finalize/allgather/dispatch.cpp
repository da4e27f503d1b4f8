#include <algorithm>
#include <cstring>

#include "prepare_finalize/allgather/allgather.hpp"
#include "prepare_finalize/dispatch_rows.hpp"
#include "prepare_finalize/parallel_rows.hpp"

namespace epmoe {
namespace {

/// Every token with all its entries, in ascending k.
struct TokenEntries {
  std::vector<std::int64_t> begin;
  std::vector<WireEntry> entries;
};

TokenEntries entries_by_token(const ExchangePlan& plan, std::int64_t tokens) {
  TokenEntries all;
  all.begin.assign(static_cast<std::size_t>(tokens) + 1, 0);
  const auto row_entries = [&](std::size_t row) { return plan.row_entry_begin[row + 1] - plan.row_entry_begin[row]; };
  for (std::size_t row = 0; row < plan.row_token.size(); ++row)
    all.begin[static_cast<std::size_t>(plan.row_token[row]) + 1] += row_entries(row);
  for (std::size_t t = 1; t < all.begin.size(); ++t) all.begin[t] += all.begin[t - 1];
  all.entries.resize(plan.entries.size());
  auto next = all.begin;
  for (std::size_t row = 0; row < plan.row_token.size(); ++row) {
    auto& at = next[static_cast<std::size_t>(plan.row_token[row])];
    for (auto e = plan.row_entry_begin[row]; e < plan.row_entry_begin[row + 1]; ++e)
      all.entries[static_cast<std::size_t>(at++)] = plan.entries[static_cast<std::size_t>(e)];
  }
  for (std::size_t t = 0; t + 1 < all.begin.size(); ++t)
    std::sort(all.entries.begin() + all.begin[t], all.entries.begin() + all.begin[t + 1],
              [](const WireEntry& a, const WireEntry& b) { return a.k < b.k; });
  return all;
}

}  // namespace

Verdict AllGather::supports(const comm::ExpertGroup&, const PrepareFinalizeConfig&) {
  return Verdict::yes();
}

/// The first rows of all ranks come by one allgather. What exceeds the receive budget follows pairwise, as its
/// receivers grant it: calls may be finished in any order, and collectives must not.
void AllGather::dispatch(Call& call, const PrepareInput& input, const ExecutionContext& context) const {
  auto& exchange = call.exchange();
  const auto& group = *terms().group;
  const auto& format = terms().dispatch_format;
  const int me = call.rank();
  const auto affordable = group.config().receive_budget_bytes /
                          (static_cast<std::int64_t>(group.size()) * group.config().max_in_flight * format.row_bytes());
  const auto capacity = std::max<std::int64_t>(1, affordable);
  std::vector<std::int64_t> first_rows;
  for (const auto tokens : input.plan->tokens) first_rows.push_back(std::min(tokens, capacity));

  const auto rows = input.plan->tokens[static_cast<std::size_t>(me)];
  const auto bytes = message_bytes(rows, capacity, format.row_bytes());
  auto* messages = exchange.hold(bytes);
  auto pieces = cut_messages(messages, rows, capacity, format.row_bytes());
  if (call.failed_input()) {
    std::memset(messages, 0, static_cast<std::size_t>(bytes));  // the others still get as many rows as they expect
    pieces.assign(1, {messages, 0});
  } else {
    const PhaseTimer timer(context, Phase::quantize);
    const auto all = entries_by_token(call.plan, rows);
    for_row_blocks(context, rows, [&](std::int64_t first, std::int64_t past) {
      for (auto t = first; t < past; ++t) {
        const auto n = static_cast<std::size_t>(t);
        write_dispatch_row(
            format, input.x, t,
            {all.entries.data() + all.begin[n], static_cast<std::size_t>(all.begin[n + 1] - all.begin[n])},
            config().router_weight_on_input, message_row(messages, t, capacity, format.row_bytes()));
      }
    });
  }
  for (int r = 0; r < call.ranks(); ++r)
    exchange.set_outbound(r, pieces,
                          call.failed_input() ? std::vector<std::int64_t>{0, 0} : home_begin(call, r, capacity));
  exchange.reserve_home();
  const PhaseTimer timer(context, Phase::dispatch);
  exchange.gather(first_rows);
}

}  // namespace epmoe
