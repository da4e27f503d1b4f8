#pragma once
#include <vector>

#include "epmoe/core/moe_config.hpp"
#include "epmoe/core/quant_config.hpp"
#include "epmoe/quantize/expert_weights.hpp"

/// The arithmetic that reference_moe and the `reference` back end share: f64 sums over values rounded as the real
/// back ends round them.
namespace epmoe::reference {

/// Weights after the rounding of packing, row-major; up and biases empty where there are none.
struct Expert {
  std::int64_t hidden = 0, intermediate = 0;
  std::vector<float> gate, up, down;
  std::vector<float> gate_bias, up_bias, down_bias;
};

/// `quant` null: no rounding.
Expert round_expert(const ExpertWeights& weights, const QuantConfig* quant);

/// Rounds n values in place as a back end rounds the input of a GEMM: not at all, to bf16, or to int8 with the static
/// scale or the values' own.
void round_activations(ComputeType compute, const ScaleConfig& scale, std::int64_t n, float* values);

/// out[rows, hidden] = expert(x[rows, hidden]), x already rounded. `quant` null: no rounding between the GEMMs.
/// Throws InputError if the activation is gated and the expert has no up matrix, or the other way round.
void ffn(const Expert& expert, Activation activation, const QuantConfig* quant, std::int64_t rows, const double* x,
         double* out);

}  // namespace epmoe::reference
