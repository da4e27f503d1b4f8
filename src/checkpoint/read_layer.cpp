#include <fmt/format.h>

#include <cmath>

#include "checkpoint/text.hpp"
#include "epmoe/checkpoint/family.hpp"

namespace epmoe::checkpoint {

ExpertWeights read_expert(TensorReader& reader, const LayerTensors& layer, std::int64_t expert) {
  const MoeConfig& moe = layer.config;
  if (expert < 0 || expert >= moe.experts)
    throw InputError(
        fmt::format("layer {}: expert {} asked for, wanted 0 to {}", layer.layer, expert, moe.experts - 1));
  const std::int64_t hidden = moe.hidden, intermediate = moe.intermediate;
  if (layer.fused()) {
    const ConstMatrixView gate_up = reader.plane(layer.fused_gate_up, moe.experts, expert, 2 * intermediate, hidden);
    return {.gate = gate_up.slice(0, intermediate),
            .up = gate_up.slice(intermediate, intermediate),
            .down = reader.plane(layer.fused_down, moe.experts, expert, hidden, intermediate)};
  }
  const std::string prefix = fmt::format("{}{}.", layer.expert_prefix, expert);
  return {.gate = reader.matrix(prefix + layer.gate_name, intermediate, hidden),
          .up = reader.matrix(prefix + layer.up_name, intermediate, hidden),
          .down = reader.matrix(prefix + layer.down_name, hidden, intermediate)};
}

ConstMatrixView read_router(TensorReader& reader, const LayerTensors& layer) {
  return reader.matrix(layer.router, layer.config.experts, layer.config.hidden);
}

std::vector<float> read_correction_bias(TensorReader& reader, const LayerTensors& layer) {
  if (layer.correction_bias.empty()) return {};
  std::vector<float> bias(static_cast<std::size_t>(layer.config.experts));
  read_row(reader.matrix(layer.correction_bias, 1, layer.config.experts), 0, bias.data());
  for (std::size_t e = 0; e < bias.size(); ++e)
    if (!std::isfinite(bias[e]))
      throw CheckpointError(fmt::format("tensor {}: value of expert {} is {}, wanted a finite number",
                                        in_quotes(layer.correction_bias), e, bias[e]));
  return bias;
}

std::optional<ExpertWeights> read_shared(TensorReader& reader, const LayerTensors& layer) {
  if (layer.shared_prefix.empty()) return std::nullopt;
  const std::int64_t hidden = layer.config.hidden, intermediate = layer.config.shared_intermediate;
  return ExpertWeights{.gate = reader.matrix(layer.shared_prefix + "gate_proj.weight", intermediate, hidden),
                       .up = reader.matrix(layer.shared_prefix + "up_proj.weight", intermediate, hidden),
                       .down = reader.matrix(layer.shared_prefix + "down_proj.weight", hidden, intermediate)};
}

std::optional<ConstMatrixView> read_shared_gate(TensorReader& reader, const LayerTensors& layer) {
  if (layer.shared_gate.empty()) return std::nullopt;
  return reader.matrix(layer.shared_gate, 1, layer.config.hidden);
}

}  // namespace epmoe::checkpoint
