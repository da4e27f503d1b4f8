#pragma once
#include <cstddef>
#include <cstdint>

#include "epmoe/experts/experts.hpp"
#include "experts/batch_rows.hpp"
#include "experts/kernels/kernel_set.hpp"

/// What happens to one row before, between and after oneDNN's products. Local, thread-safe.
namespace epmoe::onednn {

/// Bias and scales of one matrix's output columns, as they lie in a slot; null where there is none.
struct ColumnData {
  const float* scale = nullptr;              ///< int8
  const std::int32_t* column_sum = nullptr;  ///< int8
  const float* bias = nullptr;
};

/// Operand rows are f32, bf16, or u8 = s8 + 128 with one f32 scale a row, padded with zeros to the packed K.
class RowSteps {
 public:
  explicit RowSteps(const ExpertsConfig& config);
  [[nodiscard]] std::int64_t input_bytes() const { return input_bytes_; }
  [[nodiscard]] std::int64_t activated_bytes() const { return activated_bytes_; }

  /// Row `row` of a batch as left operand of the first product; returns its scale. `f32_row` is scratch [hidden].
  float gather(DispatchType type, const BatchRows& rows, std::int64_t row, float* f32_row, std::byte* out) const;
  /// One row c[n] of a product from raw to f32: int8 sums (i32 in the same memory) lose the 128 that was added to each
  /// value and get their scales; then the bias.
  void finish(const ColumnData& columns, float row_scale, std::int64_t n, float* c) const;
  /// Left operand of the second product from a row of finished gate and up values, each of padded_n(intermediate), up
  /// null where the activation is not gated; overwrites gate, returns the scale.
  float activate(float* gate, const float* up, std::byte* out) const;

 private:
  ExpertsConfig config_;
  const kernels::KernelFunctions& kernels_;
  kernels::ActivationKind activation_;
  std::int64_t input_bytes_, activated_bytes_;
};

}  // namespace epmoe::onednn
