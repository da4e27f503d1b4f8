#include "epmoe/runtime/moe_layer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <exception>

#include "epmoe/prepare_finalize/factory.hpp"

namespace epmoe {
namespace {

/// The router's weight in the dtype its GEMM is defined in, dense and aligned.
AlignedBuffer copy_router(ConstMatrixView weight, bool widen, ConstMatrixView* view) {
  const auto dtype = widen ? DType::f32 : weight.dtype;
  AlignedBuffer memory(weight.rows * weight.cols * size_bytes(dtype));
  const MatrixView to{memory.data(), dtype, weight.rows, weight.cols, weight.cols, MemorySpace::host};
  std::vector<float> row(static_cast<std::size_t>(weight.cols));
  for (std::int64_t r = 0; r < weight.rows; ++r) {
    read_row(weight, r, row.data());
    for (std::int64_t c = 0; c < weight.cols; ++c)
      if (!std::isfinite(row[static_cast<std::size_t>(c)]))  // would turn every token's scores into NaN, unseen
        throw InputError(fmt::format("router weight of expert {}, column {} is {}, wanted a finite number", r, c,
                                     row[static_cast<std::size_t>(c)]));
    if (dtype == weight.dtype) {
      std::memcpy(to.row(r), weight.row(r), static_cast<std::size_t>(weight.cols * size_bytes(dtype)));
    } else {
      write_row(to, r, row.data());
    }
  }
  *view = to;
  return memory;
}

std::shared_ptr<const SharedExperts> make_shared_experts(const LayerSource& source, const RunConfig& config,
                                                         const ExecutionContext& context) {
  if (!source.shared) return nullptr;
  ExpertsConfig shared;
  shared.shape = source.config;
  shared.shape.intermediate = source.config.shared_intermediate;
  shared.shape.experts = 1;
  shared.shape.top_k = 1;
  shared.quant = QuantConfig::for_compute(config.compute);
  shared.local_experts = 1;
  shared.isa = config.isa;
  shared.reproducible = config.reproducible;
  std::shared_ptr<const Experts> experts = make_experts(config.backend, shared, context);
  auto slots = std::make_shared<ExpertSlots>(experts->packed_layout(), 1);
  slots->pack(0, *source.shared);
  std::vector<float> gate;
  if (source.shared_gate) {
    gate.resize(static_cast<std::size_t>(source.config.hidden));
    read_row(*source.shared_gate, 0, gate.data());
  }
  return std::make_shared<SharedExperts>(std::move(experts), std::move(slots), std::move(gate));
}

}  // namespace

MoeLayer::MoeLayer(std::shared_ptr<comm::ExpertGroup> group, std::shared_ptr<const Placement> placement,
                   const LayerSource& source, const RunConfig& config, const ExecutionContext& context)
    : config_(source.config), layer_(source.layer) {
  // What needs no communication first, under one agreement: a rank that cannot read its experts stops all.
  std::shared_ptr<const Experts> experts;
  std::shared_ptr<const SharedExperts> shared;
  std::exception_ptr failure;
  try {
    config_.validate();
    if (placement->experts() != config_.experts)
      throw ConfigError(fmt::format("layer {}: the placement has {} experts, the model {}", layer_,
                                    placement->experts(), config_.experts));
    router_weight_ = copy_router(source.router, config_.routing.logits_in_f32, &router_view_);
    router_ = make_router(config_, source.correction_bias);

    const auto mine = placement->local_slots(group->rank());
    ExpertsConfig part;
    part.shape = config_;
    part.quant = QuantConfig::for_compute(config.compute);
    part.local_experts = static_cast<std::int64_t>(mine.size());
    part.isa = config.isa;
    part.reproducible = config.reproducible;
    experts = make_experts(config.backend, part, context);
    slots_ = std::make_shared<ExpertSlots>(experts->packed_layout(), part.local_experts);
    slots_->first_touch(*context.executor);
    for (std::int64_t i = 0; i < part.local_experts; ++i) {
      slots_->pack(i, source.expert(placement->slot(mine[static_cast<std::size_t>(i)]).logical_expert));
      if (source.progress) source.progress(i + 1, part.local_experts);
    }
    shared = make_shared_experts(source, config, context);
  } catch (...) {
    failure = std::current_exception();
  }
  comm::agree_or_throw(group->communicator(), failure, context, fmt::format("packing layer {}", layer_));

  PrepareFinalizeConfig wire;
  wire.hidden = config_.hidden;
  wire.top_k = config_.top_k;
  wire.experts = config_.experts;
  wire.dispatch = config.dispatch;
  wire.combine = config.combine;
  wire.reproducible = config.reproducible;
  wire.router_weight_on_input = config_.router_weight_on_input;
  wire.max_num_tokens_per_rank = config.max_num_tokens_per_rank;
  std::shared_ptr<PrepareFinalize> strategy = make_prepare_finalize(config.strategy, group, wire, context);
  kernel_ = std::make_unique<ModularKernel>(std::move(group), std::move(strategy), std::move(experts), slots_,
                                            std::move(placement), config.kernel, std::move(shared));
}

OwnedRouting MoeLayer::route(ConstMatrixView x, const ExecutionContext& context, std::vector<float>* logits) const {
  const PhaseTimer timer(context, Phase::route);
  std::vector<float> own;
  auto& values = logits != nullptr ? *logits : own;
  values.resize(static_cast<std::size_t>(x.rows * config_.experts));
  const TypedView<float, Token, Expert> view{values.data(), x.rows, config_.experts, config_.experts};
  router_logits(x, router_view_, view, context);
  OwnedRouting routing(x.rows, config_.top_k);
  router_->route(view, routing.ids(), routing.weights(), context);
  return routing;
}

ForwardResult MoeLayer::forward(ConstMatrixView x, MatrixView y, const StepPlan* plan,
                                const ExecutionContext& context) {
  const auto routing = route(x, context);
  return forward(x, routing.view(), y, plan, context);
}

ForwardResult MoeLayer::forward(ConstMatrixView x, const Routing& routing, MatrixView y, const StepPlan* plan,
                                const ExecutionContext& context) {
  return kernel_->forward({.x = x, .routing = routing, .plan = plan, .placement = nullptr, .layer = layer_}, y,
                          context);
}

std::int64_t MoeLayer::packed_bytes() const {
  return slots_->bytes();
}

}  // namespace epmoe
