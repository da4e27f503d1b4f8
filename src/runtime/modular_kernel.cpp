#include "epmoe/runtime/modular_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "epmoe/comm/step_plan.hpp"
#include "epmoe/prepare_finalize/exchange_plan.hpp"
#include "runtime/expert_stage.hpp"

namespace epmoe {

/// The four stages. Slices of the tokens follow each other: slice s + 1 travels while s is computed and s - 1 returns.
ForwardResult ModularKernel::run(const ForwardInput& input, MatrixView routed, MatrixView shared_out,
                                 const ExecutionContext& outer) {
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
    return prepare_finalize_->prepare_async(slices.prepare_input(s, placement, group_->rank()), context);
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
  check_output(input, y, "y");
  return forward_into(input, y, context);
}

/// Sums in f32 scratch unless y is f32 and apart from x, then rounds once.
ForwardResult ModularKernel::forward_into(const ForwardInput& input, MatrixView y, const ExecutionContext& context) {
  const auto hidden = experts_->config().shape.hidden;
  const auto values = input.x.rows * hidden;
  const bool direct = y.dtype == DType::f32 && !overlap(input.x, y);
  const bool has_shared = shared_ != nullptr;
  const auto wanted = (direct ? 0 : values) + (has_shared ? values : 0);
  auto* scratch = reinterpret_cast<float*>(context.workspaces->result.get(wanted * size_bytes(DType::f32)));
  const auto routed = direct ? y : matrix_view(scratch, input.x.rows, hidden);
  const auto shared =
      has_shared ? matrix_view(scratch + (direct ? 0 : values), input.x.rows, hidden) : MatrixView{};
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
  check_output(input, y.shared, "shared output");
  check_output(input, y.routed, "routed output");
  for (const auto& view : {y.shared, y.routed})
    if (view.dtype != DType::f32)
      throw InputError(fmt::format("forward_split: output is {}, wanted f32", describe(view)));
  return run(input, y.routed, y.shared, context);
}

void ModularKernel::check_output(const ForwardInput& input, MatrixView y, std::string_view what) const {
  const auto hidden = experts_->config().shape.hidden;
  if (y.rows != input.x.rows || y.cols != hidden || (y.dtype != DType::f32 && y.dtype != DType::bf16))
    throw InputError(fmt::format("rank {}: {} is {}, wanted [{}, {}] f32 or bf16", group_->rank(), what, describe(y),
                                 input.x.rows, hidden));
  if (overlap(input.x, y))
    throw InputError(fmt::format("rank {}: {} overlaps x; use forward_in_place", group_->rank(), what));
}

}  // namespace epmoe
