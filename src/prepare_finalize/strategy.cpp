#include "prepare_finalize/strategy.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "prepare_finalize/bad_input.hpp"
#include "prepare_finalize/dispatch_rows.hpp"
#include "prepare_finalize/parallel_rows.hpp"

namespace epmoe {

Strategy::Strategy(std::shared_ptr<comm::ExpertGroup> group, const PrepareFinalizeConfig& config, bool rows_for_all)
    : terms_(std::make_shared<StrategyTerms>(
          StrategyTerms{std::move(group), config, DispatchRowFormat(config.dispatch, config.hidden, config.top_k),
                        CombineRowFormat(config.combine, config.hidden), rows_for_all})) {}

std::optional<std::int64_t> Strategy::max_num_tokens_per_rank() const {
  if (config().max_num_tokens_per_rank == 0) return std::nullopt;
  return config().max_num_tokens_per_rank;
}

void Strategy::post_init_setup(const ExpertsTraits& experts) {
  if (config().reproducible && experts.leaves_to_finalize == WeightAndReduceKind::no_op)
    throw ConfigError(fmt::format(
        "reproducible: found experts that weigh and sum by themselves ({}), wanted one row per token and expert",
        epmoe::name(experts.leaves_to_finalize)));
}

std::unique_ptr<PendingDispatch> Strategy::prepare_async(const PrepareInput& input, const ExecutionContext& context) {
  if (input.plan == nullptr || input.placement == nullptr)
    throw InputError("prepare: found no step plan or no placement, wanted both");
  if (input.plan->tokens.size() != static_cast<std::size_t>(terms_->group->size()))
    throw InputError(fmt::format("prepare: the step plan knows {} ranks, the group has {}", input.plan->tokens.size(),
                                 terms_->group->size()));
  auto failed = check_input(input, config(), terms_->group->rank(), terms_->group->size());
  ExchangePlan plan;
  if (!failed.any()) try {
      plan = plan_exchange(input.routing, *input.placement, input.global_first_token);
    } catch (const std::exception& error) {
      context.log(LogLevel::error, error.what());
      failed = failure(ErrorCode::internal, comm::MessageError::stage_failed);
    }
  auto call = std::make_unique<Call>(terms_, input, failed);
  if (!failed.any()) call->plan = std::move(plan);
  dispatch(*call, input, context);
  call->exchange().set_started();
  call->exchange().advance();
  call->report(context);
  return make_pending_dispatch(std::move(call), context);
}

void write_planned_rows(const Call& call, int destination, const PrepareInput& input, std::byte* messages,
                        std::int64_t capacity, const ExecutionContext& context) {
  const PhaseTimer timer(context, Phase::quantize);
  const auto& plan = call.plan;
  const auto& terms = call.terms();
  const auto row_bytes = terms.dispatch_format.row_bytes();
  const auto begin = plan.rank_begin[static_cast<std::size_t>(destination)];
  for_row_blocks(context, plan.rows_to(destination), [&](std::int64_t first, std::int64_t past) {
    for (auto r = first; r < past; ++r) {
      const auto row = static_cast<std::size_t>(begin + r);
      const auto entry = plan.row_entry_begin[row];
      write_dispatch_row(terms.dispatch_format, input.x, plan.row_token[row],
                         {plan.entries.data() + entry, static_cast<std::size_t>(plan.row_entry_begin[row + 1] - entry)},
                         terms.config.router_weight_on_input, message_row(messages, r, capacity, row_bytes));
    }
  });
}

Call& Strategy::checked(Receipt& receipt, std::string_view what) const {
  if (!receipt.valid()) throw InputError(fmt::format("{}: found a receipt that was used before", what));
  if (receipt.owner() != terms_->id())
    throw InputError(fmt::format("{}: found a receipt of another prepare/finalize object", what));
  return *receipt.state<ReceiptState>().call;
}

}  // namespace epmoe
