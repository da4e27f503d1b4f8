#include "epmoe/runtime/modular_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "epmoe/comm/step_plan.hpp"
#include "epmoe/prepare_finalize/exchange_plan.hpp"
#include "runtime/expert_stage.hpp"

namespace epmoe {

/// The four stages. Slices of the tokens follow each other: slice s + 1 travels while s is computed and s - 1 returns.
ForwardResult ModularKernel::run(const ForwardInput& input, MatrixView routed, MatrixView shared_out,
                                 const ExecutionContext& outer, ErrorCode failure) {
  ForwardResult result;
  const TrafficTally tally(outer, group_->engine(), result);
  const auto& context = tally.context();
  const auto placement = input.placement != nullptr ? input.placement : placement_;
  const StepPlan plan =
      input.plan != nullptr
          ? *input.plan
          : comm::agree_step(*group_, {.tokens = input.x.rows, .placement_epoch = placement->epoch()}, context);
  const TokenSlices slices(input, plan, config_.pipeline);
  const auto send = [&](std::int64_t s) {
    auto slice = slices.prepare_input(s, placement, group_->rank());
    slice.failure = failure;
    return prepare_finalize_->prepare_async(slice, context);
  };
  const bool has_shared = shared_ != nullptr && shared_out.rows > 0;
  const bool overlap_shared = has_shared && input.x.rows <= config_.shared_token_threshold;

  std::unique_ptr<PendingCombine> returning;
  auto travelling = send(0);
  for (std::int64_t s = 0; s < slices.count(); ++s) {
    auto next = s + 1 < slices.count() ? send(s + 1) : nullptr;
    auto part = travelling->receive();
    auto receipt = std::move(part.receipt);
    auto output = run_experts(part.batch, context, result);
    while (part.more) {
      part = prepare_finalize_->next_part(receipt, output, context);
      output = run_experts(part.batch, context, result);
    }
    auto combine = prepare_finalize_->finalize_async(std::move(receipt), slices.routing(s), output,
                                                     slices.rows_of(routed, s), context);
    if (returning != nullptr) returning->receive();
    returning = std::move(combine);
    travelling = std::move(next);
  }
  if (overlap_shared) shared_->apply(input.x, shared_out, context);  // while the last rows come home
  returning->receive();
  if (has_shared && !overlap_shared) shared_->apply(input.x, shared_out, context);
  result.tokens = input.x.rows;
  result.lost_weight.assign(static_cast<std::size_t>(input.x.rows), 0.0F);
  return result;
}

ForwardResult ModularKernel::forward(const ForwardInput& input, MatrixView y, const ExecutionContext& context) {
  check_outputs(input, {y}, context);
  return forward_into(input, y, context);
}

/// Sums in f32 scratch unless y is f32 and apart from x, then rounds once.
ForwardResult ModularKernel::forward_into(const ForwardInput& input, MatrixView y, const ExecutionContext& context) {
  const auto hidden = experts_->config().shape.hidden;
  const auto values = input.x.rows * hidden;
  const bool direct = y.dtype == DType::f32 && !overlap(input.x, y);
  const bool has_shared = shared_ != nullptr;
  const auto wanted = (direct ? 0 : values) + (has_shared ? values : 0);
  float* scratch = nullptr;
  try {
    scratch = reinterpret_cast<float*>(context.workspaces->result.get(wanted * size_bytes(DType::f32)));
  } catch (const Error& error) {
    fail_with_all(input, error, context);
  }
  const auto routed = direct ? y : matrix_view(scratch, input.x.rows, hidden);
  const auto shared = has_shared ? matrix_view(scratch + (direct ? 0 : values), input.x.rows, hidden) : MatrixView{};
  auto result = run(input, routed, shared, context);
  if (direct && !has_shared) return result;
  const auto sum = routed.as<float, Token, Hidden>();
  context.executor->run(
      input.x.rows,
      [&](std::int64_t t, int) {
        if (has_shared) add_weighted(sum.row(t), reinterpret_cast<const float*>(shared.row(t)), 1.0F, hidden);
        if (!direct) write_row(y, t, sum.row(t));
      },
      context.progress);
  return result;
}

ForwardResult ModularKernel::forward_in_place(const Routing& routing, MatrixView x, const StepPlan* plan,
                                              std::int64_t layer, const ExecutionContext& context) {
  if (shared_ != nullptr)
    throw InputError("forward_in_place: the layer has shared experts, which need the original x; use forward");
  return forward_into({.x = x, .routing = routing, .plan = plan, .placement = nullptr, .layer = layer}, x, context);
}

ForwardResult ModularKernel::forward_split(const ForwardInput& input, SplitOutput y, const ExecutionContext& context) {
  if (shared_ == nullptr) throw InputError("forward_split: the layer has no shared experts");
  check_outputs(input, {y.shared, y.routed}, context);
  return run(input, y.routed, y.shared, context);
}

/// A bad output or placement on one rank: that rank still takes part in the call, so that all ranks throw and none
/// waits.
void ModularKernel::check_outputs(const ForwardInput& input, std::initializer_list<MatrixView> outputs,
                                  const ExecutionContext& context) {
  try {
    for (const auto& y : outputs) check_output(input, y, outputs.size() == 1);
    if (input.placement != nullptr) check_placement(*input.placement);
  } catch (const InputError& error) {
    fail_with_all(input, error, context);
  }
}

/// Takes part in the call with a status instead of rows, then throws what this rank knows best.
void ModularKernel::fail_with_all(const ForwardInput& input, const Error& error, const ExecutionContext& context) {
  try {
    run(input, {}, {}, context, error.code());
  } catch (const Error& travelled) {
    if (travelled.code() != error.code()) throw;
  }
  throw_error(error.code(), error.what(), group_->rank(), "dispatch");
}

/// A call may bring its own expert map, as long as it fits the weights that this rank holds.
void ModularKernel::check_placement(const Placement& placement) const {
  const bool fits = placement.ranks() == group_->size() && placement.experts() == placement_->experts();
  const auto owned = fits ? static_cast<std::int64_t>(placement.local_slots(group_->rank()).size()) : 0;
  if (!fits || owned != slots_->slots())
    throw InputError(
        fmt::format("rank {}: the call's placement has {} experts on {} ranks with {} slots here, wanted "
                    "{} on {} with {}",
                    group_->rank(), placement.experts(), placement.ranks(), owned, placement_->experts(),
                    group_->size(), slots_->slots()));
}

void ModularKernel::check_output(const ForwardInput& input, MatrixView y, bool bf16_allowed) const {
  const auto hidden = experts_->config().shape.hidden;
  if (y.rows != input.x.rows || y.cols != hidden ||
      !(y.dtype == DType::f32 || (bf16_allowed && y.dtype == DType::bf16)))
    throw InputError(fmt::format("rank {}: the output is {}, wanted [{}, {}] f32{}", group_->rank(), describe(y),
                                 input.x.rows, hidden, bf16_allowed ? " or bf16" : ""));
  if (overlap(input.x, y))
    throw InputError(fmt::format("rank {}: the output overlaps x; use forward_in_place", group_->rank()));
}

}  // namespace epmoe
