#pragma once
#include "epmoe/core/stage_data.hpp"

namespace epmoe {

/// A batch in BatchedExperts form: [local experts, max_rows, hidden] in the batch's number format, made from the same
/// segments as the standard form, so every strategy serves both. Padding rows are uninitialised and never read.
struct BatchedRows {
  std::int64_t max_rows = 0;        ///< rows per expert, padding included
  std::vector<std::int64_t> count;  ///< [local experts]
  std::int64_t row_stride_bytes = 0;
  std::int64_t scale_offset_bytes = 0;  ///< where an int8 row's f32 scale lies from its start
  AlignedBuffer rows;                   ///< row (e, i) at (e * max_rows + i) * row_stride_bytes
};
/// Gathers the indexed entries. `max_rows` >= the largest count (InternalError naming both otherwise).
BatchedRows to_batched(const ExpertBatch& batch, const ExpertIndex& index, std::int64_t max_rows);

}  // namespace epmoe
