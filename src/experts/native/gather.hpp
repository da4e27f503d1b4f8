#pragma once
#include "epmoe/core/execution_context.hpp"
#include "epmoe/experts/experts.hpp"
#include "experts/row_conversion.hpp"

namespace epmoe::native {

/// Rows of one GEMM's input, in the order of the entries.
struct GemmRows {
  const void** rows = nullptr;  ///< [entries] in the compute type, of the padded K
  float* scales = nullptr;      ///< [entries], int8 only
};

/// Bytes of a converted row of n values: padded as the weights are, then, for int8 rows that meet int4 weights, the
/// int32 sums of its parts.
std::int64_t row_bytes(const PackedLayout& packed, std::int64_t n);

/// Where converted rows go: one after the other, padded with zeros to the stride.
struct RowStore {
  std::byte* data = nullptr;
  std::int64_t stride_bytes = 0;
  std::int64_t read_bytes = 0;  ///< row_bytes(): what the GEMM reads of a row; gather() wants it
};

/// Rows whose f32 values are needed as a whole are decoded by tasks of this many rows, each with a scratch row.
inline constexpr std::int64_t kRowsPerTask = 8;

struct GatherScratch {
  float* rows = nullptr;  ///< a row of H floats per task; only int8 compute uses it
  std::int64_t stride = 0;
};

/// Points every entry at its row in the compute type. A row that lies in the batch as the GEMM wants it is used where
/// it is; every other row is converted into `store` once, however many experts it goes to.
void gather(const RowConversion& conversion, const ExpertBatch& batch, const ExpertIndex& index, const RowStore& store,
            const GatherScratch& scratch, const GemmRows& to, const ExecutionContext& context);

/// int8: entry i = quantised activation[i] of n values, with the static scale or the row's own.
void quantize_rows(const RowConversion& conversion, const float* activation, std::int64_t stride, std::int64_t n,
                   std::int64_t count, const RowStore& store, const GemmRows& to, const ExecutionContext& context);
/// Points entry i at row i of `data`.
void point_at_rows(const std::byte* data, std::int64_t stride_bytes, std::int64_t count, const GemmRows& to);

}  // namespace epmoe::native
