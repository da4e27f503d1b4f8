#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "epmoe/core/moe_config.hpp"
#include "epmoe/core/quant_config.hpp"
#include "epmoe/core/stage_data.hpp"
#include "epmoe/quantize/expert_weights.hpp"

/// The truth: plain loops in f64. Local, slow, thread-safe.
namespace epmoe {

struct ReferenceConfig {
  MoeConfig shape;
  QuantConfig quant;                          ///< ignored when `quantise_alike` is false
  DispatchType dispatch = DispatchType::f32;  ///< wire rounding of the rows
  bool quantise_alike = true;                 ///< round rows, weights and activations as the real path does
};

/// y[t] = sum over k of weight * expert(x[t]) in f64, from checkpoint weights. `expert(id)` gives an expert's weights.
/// x [tokens, hidden]; result row-major [tokens, hidden]. Shared experts are not included.
std::vector<double> reference_moe(const ReferenceConfig& config, ConstMatrixView x, const Routing& routing,
                                  const std::function<ExpertWeights(std::int32_t)>& expert);
/// One expert on f64 rows already rounded as wanted, with an optional sigmoid gate per row [1, H]: the shared expert.
std::vector<double> reference_shared(const ReferenceConfig& config, ConstMatrixView x, const ExpertWeights& weights,
                                     const ConstMatrixView* gate);

/// Relative L2 error over all values, and the worst single row's.
struct RelativeError {
  double total = 0.0;
  double worst_row = 0.0;
  std::int64_t worst_row_index = -1;
};
RelativeError relative_error(ConstMatrixView found, const std::vector<double>& wanted);

}  // namespace epmoe
