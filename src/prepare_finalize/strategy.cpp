#include "prepare_finalize/strategy.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

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

std::string Strategy::input_fault(const PrepareInput& input) const {
  const auto& x = input.x;
  const auto tokens = input.plan->tokens[static_cast<std::size_t>(terms_->group->rank())];
  if (x.dtype != DType::f32 && x.dtype != DType::f16 && x.dtype != DType::bf16)
    return fmt::format("x is {}, wanted f32, f16 or bf16", describe(x));
  if (x.cols != config().hidden) return fmt::format("x is {}, wanted hidden {}", describe(x), config().hidden);
  if (x.rows < 0 || x.rows != tokens) return fmt::format("x is {}, the step plan says {} tokens", describe(x), tokens);
  if (x.rows > 0 && (x.data == nullptr || x.stride < x.cols))
    return fmt::format("x is {} with data {} and stride {}", describe(x), x.data == nullptr ? "null" : "given",
                       x.stride);
  for (const auto rows : {input.routing.ids.rows, input.routing.weights.rows})
    if (rows != x.rows) return fmt::format("routing has {} rows, x {}", rows, x.rows);
  for (const auto cols : {input.routing.ids.cols, input.routing.weights.cols})
    if (x.rows > 0 && cols != config().top_k)
      return fmt::format("routing has top_k {}, wanted {}", cols, config().top_k);
  if (const auto most = config().max_num_tokens_per_rank; most > 0 && x.rows > most)
    return fmt::format("{} tokens, wanted at most max_num_tokens_per_rank {}", x.rows, most);
  if (input.placement->experts() != config().experts || input.placement->ranks() != terms_->group->size())
    return fmt::format("placement of {} experts on {} ranks, wanted {} on {}", input.placement->experts(),
                       input.placement->ranks(), config().experts, terms_->group->size());
  return {};
}

comm::Failure Strategy::check_input(const PrepareInput& input, const ExecutionContext& context) const {
  if (input.failure != ErrorCode::none) return failure(input.failure, comm::MessageError::bad_input);
  if (const auto fault = input_fault(input); !fault.empty()) {
    context.log(LogLevel::error, fmt::format("rank {}: dispatch: {}", terms_->group->rank(), fault));
    return failure(ErrorCode::input, comm::MessageError::bad_input);
  }
  if (const auto bad = find_bad_id(input.routing, config().experts))
    return {ErrorCode::input, comm::MessageError::id_out_of_range, terms_->group->rank(), bad->row, bad->value};
  return {};
}

std::unique_ptr<PendingDispatch> Strategy::prepare_async(const PrepareInput& input, const ExecutionContext& context) {
  if (input.plan == nullptr || input.placement == nullptr)
    throw InputError("prepare: found no step plan or no placement, wanted both");
  if (input.plan->tokens.size() != static_cast<std::size_t>(terms_->group->size()))
    throw InputError(fmt::format("prepare: the step plan knows {} ranks, the group has {}", input.plan->tokens.size(),
                                 terms_->group->size()));
  auto failed = check_input(input, context);
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
