#pragma once
#include <cstdint>
#include <memory>
#include <string_view>

#include "epmoe/core/stage_data.hpp"

/// Who multiplies expert outputs by their routing weights and sums them, exactly once (vLLM: TopKWeightAndReduce).
/// Local, thread-safe.
namespace epmoe {

enum class WeightAndReduceKind : std::uint8_t {
  delegate,       ///< the experts leave it to prepare/finalize, whose strategy picks one of the others
  no_op,          ///< the experts have done it: rows are final
  contiguous,     ///< input [entries, hidden] in row order
  naive_batched,  ///< input [local experts, max rows, hidden], padding never read
};
std::string_view name(WeightAndReduceKind kind);

class TopKWeightAndReduce {
 public:
  virtual ~TopKWeightAndReduce() = default;
  [[nodiscard]] virtual WeightAndReduceKind kind() const = 0;
  /// out[r] = sum over entries of row r in ascending k of weight * expert_output[entry]; f32 [index.rows, hidden].
  /// Every row is written; a row without entries becomes zero. `skip_weights` (weights were applied on input) sums
  /// only. Product and sum are rounded separately, so the result has the same bits on every ISA.
  virtual void apply(const ExpertBatch& batch, const ExpertIndex& index, ConstMatrixView expert_output, MatrixView out,
                     bool skip_weights) const = 0;
  /// The same into memory of its own, [index.rows, hidden] f32.
  [[nodiscard]] AlignedBuffer apply(const ExpertBatch& batch, const ExpertIndex& index, ConstMatrixView expert_output,
                                    bool skip_weights) const;
};

/// `delegate` gives an object whose apply throws InternalError: it must be replaced before use.
/// For naive_batched `max_rows` is the padded row count per expert.
std::unique_ptr<TopKWeightAndReduce> make_weight_and_reduce(WeightAndReduceKind kind, std::int64_t max_rows = 0);

/// out += weight * in over n floats, product and sum rounded separately.
void add_weighted(float* out, const float* in, float weight, std::int64_t n);

}  // namespace epmoe
