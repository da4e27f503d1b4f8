#pragma once
#include "epmoe/core/execution_context.hpp"
#include "epmoe/experts/experts.hpp"
#include "experts/batch_rows.hpp"
#include "experts/kernels/kernel_set.hpp"

namespace epmoe::native {

/// A row as it arrived; scale: int8 only.
struct RowSource {
  DispatchType type;
  const std::byte* values;
  float scale;
};
/// One row's values in the compute type; returns its scale (int8 compute, else 1). int8 rows that meet int8 compute are
/// passed through. `scratch` is [hidden], used by int8 compute only.
float convert_row(const ExpertsConfig& config, const kernels::KernelFunctions& kernels, const RowSource& source,
                  std::byte* out, float* scratch);
/// n values to int8 with the static scale or their own; NaN is the scale of a row that holds NaN or Inf.
float quantize_row(const ScaleConfig& scale, const float* in, std::int64_t n, std::byte* out);
kernels::ActivationKind kind_of(Activation activation);

/// Rows of one GEMM's input in the compute type, padded to the stride (with anything: the weights there are zeros,
/// and the padding is finite).
struct GemmRows {
  std::byte* data = nullptr;
  std::int64_t stride_bytes = 0;
  float* scales = nullptr;     ///< int8 only
  bool unsigned_rows = false;  ///< int8: stored as value + 128
};

/// Rows whose f32 values are needed as a whole are decoded by tasks of this many entries, each with a scratch row.
inline constexpr std::int64_t kEntriesPerTask = 8;

struct GatherScratch {
  float* rows = nullptr;  ///< a row of padded_k(H) floats per task; only int8 compute uses it
  std::int64_t stride = 0;
};

/// rows[i] = the row of entry i (in expert order), converted once.
void gather(const ExpertsConfig& config, const kernels::KernelFunctions& kernels, const ExpertBatch& batch,
            const ExpertIndex& index, const BatchRows& from, const GemmRows& to, const GatherScratch& scratch,
            const ExecutionContext& context);

/// int8: rows[i] = quantised activation[i] of n values, with the static scale or the row's own.
void quantize_rows(const ScaleConfig& scale, const float* activation, std::int64_t stride, std::int64_t n,
                   std::int64_t count, const GemmRows& to, const ExecutionContext& context);

}  // namespace epmoe::native
