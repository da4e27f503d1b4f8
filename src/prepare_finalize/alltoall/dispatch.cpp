#include <algorithm>

#include "prepare_finalize/alltoall/alltoall.hpp"
#include "prepare_finalize/dispatch_rows.hpp"

namespace epmoe {
namespace {

/// Rows that one message from `source` to `owner` may carry, the same on both ends.
std::int64_t capacity(const StrategyTerms& terms, const PrepareInput& input, int source, int owner) {
  const auto& group = *terms.group;
  const auto owned = static_cast<std::int64_t>(input.placement->local_slots(owner).size());
  const auto rows = rows_per_message(*input.plan, terms.config.experts, terms.config.top_k, owned,
                                     group.config().receive_budget_bytes, group.size(), group.config().max_in_flight,
                                     terms.dispatch_format.row_bytes());
  return std::min(input.plan->tokens[static_cast<std::size_t>(source)], rows);
}

}  // namespace

Verdict AllToAll::supports(const comm::ExpertGroup&, const PrepareFinalizeConfig&) {
  return Verdict::yes();
}

void AllToAll::dispatch(Call& call, const PrepareInput& input, const ExecutionContext& context) const {
  auto& exchange = call.exchange();
  const auto row_bytes = terms().dispatch_format.row_bytes();
  const auto ranks = static_cast<std::size_t>(call.ranks());
  const int me = call.rank();
  std::vector<std::int64_t> receive(ranks), send(ranks);
  for (int r = 0; r < call.ranks(); ++r) {
    const auto n = static_cast<std::size_t>(r);
    receive[n] = capacity(terms(), input, r, me);
    const auto whole = call.plan.rows_to(r);  // what does not travel needs no receive buffer
    send[n] = std::max<std::int64_t>(1, r == me ? whole : capacity(terms(), input, me, r));
  }
  {
    const PhaseTimer timer(context, Phase::dispatch);
    exchange.receive_from_each(receive);
  }

  std::vector<std::byte*> messages(ranks);
  std::int64_t bytes = 0;
  for (int r = 0; r < call.ranks(); ++r)
    bytes += message_bytes(call.plan.rows_to(r), send[static_cast<std::size_t>(r)], row_bytes);
  auto* at = exchange.hold(bytes);
  for (int r = 0; r < call.ranks(); ++r) {
    const auto n = static_cast<std::size_t>(r);
    messages[n] = at;
    exchange.set_outbound(r, cut_messages(at, call.plan.rows_to(r), send[n], row_bytes), home_begin(call, r, send[n]));
    at += message_bytes(call.plan.rows_to(r), send[n], row_bytes);
  }
  exchange.reserve_home();

  for (int i = 1; i <= call.ranks(); ++i) {  // this rank's own rows last, while the others travel
    const int to = (me + i) % call.ranks();
    const auto n = static_cast<std::size_t>(to);
    write_planned_rows(call, to, input, messages[n], send[n], context);
    const PhaseTimer timer(context, Phase::dispatch);
    if (to != me) exchange.send_first(to);
  }
}

}  // namespace epmoe
