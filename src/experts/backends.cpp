#include "experts/backends.hpp"

#include <fmt/format.h>

#include "epmoe/core/error.hpp"

namespace epmoe {

std::vector<BackendInfo> backends() {
  std::vector<BackendInfo> all{native_backend()};
#if EPMOE_WITH_ONEDNN
  for (const BackendInfo& backend : onednn_backends()) all.push_back(backend);
#endif
  all.push_back(reference_backend());
  return all;
}

std::unique_ptr<Experts> make_experts(std::string_view name, const ExpertsConfig& config,
                                      const ExecutionContext& context) {
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
    case DType::bf16:
      return answer(ComputeType::bf16, "the checkpoint is bf16, and the native kernels compute in bf16 on every CPU");
    case DType::f16:
      return answer(ComputeType::f32,
                    "the checkpoint is f16, for which there is no kernel: weights are widened to f32");
    case DType::f32: return answer(ComputeType::f32, "the checkpoint is f32");
    default: return answer(ComputeType::f32, "the checkpoint's type has no kernel: f32");
  }
}

namespace experts {

Verdict supports_quantisation(const ExpertsConfig& config) {
  const MoeConfig& shape = config.shape;
  if (shape.hidden < 1 || shape.intermediate < 1)
    return Verdict::no(
        fmt::format("hidden {} and intermediate {} must be at least 1", shape.hidden, shape.intermediate));
  try {
    config.quant.validate();
  } catch (const ConfigError& error) {
    return Verdict::no(error.what());
  }
  return Verdict::yes();
}

PackedLayout packed_layout_of(const ExpertsConfig& config) {
  PackedLayout layout;
  layout.compute = config.quant.compute;
  layout.weights = config.quant.weights;
  layout.hidden = config.shape.hidden;
  layout.intermediate = config.shape.intermediate;
  layout.biases = config.quant.w1_bias || config.quant.w2_bias;
  layout.gated = is_gated(config.shape.activation);
  return layout;
}

void check_apply(const Experts& experts, const ExpertBatch& batch, const ExpertIndex& index, const ExpertSlots& slots,
                 const MatrixView& output) {
  const std::int64_t hidden = experts.config().shape.hidden;
  if (batch.hidden != hidden)
    throw InputError(fmt::format("experts: rows of hidden {}, wanted {}", batch.hidden, hidden));
  if (!(slots.layout() == experts.packed_layout()))
    throw InputError("experts: the slots were packed for another shape, activation, compute type or bias setting");
  const auto indexed = static_cast<std::int64_t>(index.expert_begin.size()) - 1;
  if (indexed > slots.slots() + slots.spare_slots())
    throw InputError(fmt::format("experts: an index over {} experts, but there are {} slots", indexed, slots.slots()));
  // In padded form the output has rows that no entry names.
  if (output.dtype != DType::f32 || output.rows < index.entries || output.cols != hidden || output.stride < hidden)
    throw InputError(
        fmt::format("experts: output is {}, wanted [{}, {}] f32", describe(output), index.entries, hidden));
}

}  // namespace experts
}  // namespace epmoe
