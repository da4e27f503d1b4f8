#include "experts/backends.hpp"

#include <fmt/format.h>

#include "epmoe/core/error.hpp"

namespace epmoe {

std::vector<BackendInfo> backends() { return {native_backend(), reference_backend()}; }

std::unique_ptr<Experts> make_experts(std::string_view name, const ExpertsConfig& config, const ExecutionContext& context) {
  std::string known, refusals;
  for (const BackendInfo& backend : backends()) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", backend.name);
    const bool automatic = name == "auto" || name.empty();
    if (automatic ? !backend.automatic : backend.name != name) continue;
    const Verdict verdict = backend.supports(config);
    if (verdict) return backend.make(config);
    if (!automatic) throw ConfigError(fmt::format("experts back end {}: {}", backend.name, verdict.reason));
    context.log(LogLevel::debug, fmt::format("experts back end {} refused: {}", backend.name, verdict.reason));
    refusals += fmt::format("{}{}: {}", refusals.empty() ? "" : "; ", backend.name, verdict.reason);
  }
  if (!refusals.empty()) throw ConfigError(fmt::format("no experts back end takes this configuration: {}", refusals));
  throw ConfigError(fmt::format("unknown experts back end '{}', known: auto, {}", name, known));
}

ProblemSize Experts::problem_size(const ExpertBatch& batch, const ExpertIndex& index) const {
  const MoeConfig& shape = config().shape;
  return {batch.local_experts, index.rows, index.entries, shape.intermediate, batch.hidden, shape.top_k};
}

ComputeType resolve_compute_type(DType checkpoint, std::string* reason) {
  const auto answer = [reason](ComputeType type, const char* why) {
    if (reason != nullptr) *reason = why;
    return type;
  };
  switch (checkpoint) {
    case DType::bf16: return answer(ComputeType::bf16, "the checkpoint is bf16, and the native kernels compute in bf16 on every CPU");
    case DType::f16: return answer(ComputeType::f32, "the checkpoint is f16, for which there is no kernel: weights are widened to f32");
    case DType::f32: return answer(ComputeType::f32, "the checkpoint is f32");
    default: return answer(ComputeType::f32, "the checkpoint's type has no kernel: f32");
  }
}

namespace experts {
namespace {

using Granularity = ScaleConfig::Granularity;

std::string refuse_activation(const char* field, const ScaleConfig& scale, ComputeType compute) {
  if (scale.zero_point) return fmt::format("quant.{}: zero points are not supported", field);
  if (scale.packed_ue8m0) return fmt::format("quant.{}: packed UE8M0 scales are not supported", field);
  if (scale.granularity == Granularity::per_block) return fmt::format("quant.{}: block scales are not supported", field);
  if (compute != ComputeType::int8) {
    if (scale.granularity != Granularity::none || scale.is_static)
      return fmt::format("quant.{}: {} compute takes no activation scales", field, name(compute));
    return {};
  }
  if (scale.granularity == Granularity::per_channel) return fmt::format("quant.{}: activations have no per-channel scales", field);
  if (scale.is_static) {
    if (scale.granularity == Granularity::per_token) return fmt::format("quant.{}: a static scale is per tensor, not per token", field);
    if (!scale.static_scale.has_value()) return fmt::format("quant.{}: static, but there is no static_scale", field);
    if (!(*scale.static_scale > 0.0F) || !(*scale.static_scale <= 3.0e38F))
      return fmt::format("quant.{}: static_scale {} is not a positive finite number", field, *scale.static_scale);
  } else if (scale.granularity == Granularity::per_tensor) {
    return fmt::format("quant.{}: a dynamic per-tensor scale depends on the batch; use per_token or a static scale", field);
  }
  return {};
}

std::string refuse_weight(const char* field, const ScaleConfig& scale, ComputeType compute) {
  if (scale.zero_point) return fmt::format("quant.{}: zero points are not supported", field);
  if (scale.packed_ue8m0) return fmt::format("quant.{}: packed UE8M0 scales are not supported", field);
  const bool fits = compute == ComputeType::int8
                        ? scale.granularity == Granularity::per_channel || scale.granularity == Granularity::none
                        : scale.granularity == Granularity::none;
  if (!fits) return fmt::format("quant.{}: {} compute takes {}", field, name(compute),
                                compute == ComputeType::int8 ? "per-channel weight scales only" : "no weight scales");
  return {};
}

}  // namespace

Verdict supports_quantisation(const ExpertsConfig& config) {
  const QuantConfig& quant = config.quant;
  for (std::string why : {refuse_activation("a1", quant.a1, quant.compute), refuse_activation("a2", quant.a2, quant.compute),
                          refuse_weight("w1", quant.w1, quant.compute), refuse_weight("w2", quant.w2, quant.compute)})
    if (!why.empty()) return Verdict::no(std::move(why));
  if (quant.a1_global_scale || quant.a2_global_scale) return Verdict::no("quant.a1_global_scale, a2_global_scale: two-level scales are not supported");
  if (quant.g1_alpha || quant.g2_alpha) return Verdict::no("quant.g1_alpha, g2_alpha: output factors are not supported");
  const MoeConfig& shape = config.shape;
  if (shape.hidden < 1 || shape.intermediate < 1)
    return Verdict::no(fmt::format("hidden {} and intermediate {} must be at least 1", shape.hidden, shape.intermediate));
  return Verdict::yes();
}

PackedLayout packed_layout_of(const ExpertsConfig& config) {
  PackedLayout layout;
  layout.compute = config.quant.compute;
  layout.hidden = config.shape.hidden;
  layout.intermediate = config.shape.intermediate;
  layout.biases = config.quant.w1_bias || config.quant.w2_bias;
  return layout;
}

void check_apply(const Experts& experts, const ExpertBatch& batch, const ExpertIndex& index, const ExpertSlots& slots,
                 const MatrixView& output) {
  const std::int64_t hidden = experts.config().shape.hidden;
  if (batch.hidden != hidden) throw InputError(fmt::format("experts: rows of hidden {}, wanted {}", batch.hidden, hidden));
  if (!(slots.layout() == experts.packed_layout()))
    throw InputError("experts: the slots were packed for another shape, compute type or bias setting");
  const auto indexed = static_cast<std::int64_t>(index.expert_begin.size()) - 1;
  if (indexed > slots.slots() + slots.spare_slots())
    throw InputError(fmt::format("experts: an index over {} experts, but there are {} slots", indexed, slots.slots()));
  if (output.dtype != DType::f32 || output.rows != index.entries || output.cols != hidden || output.stride < hidden)
    throw InputError(fmt::format("experts: output is {}, wanted [{}, {}] f32", describe(output), index.entries, hidden));
}

}  // namespace experts
}  // namespace epmoe
