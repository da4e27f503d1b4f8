#pragma once
#include <cstdint>
#include <memory>

#include "epmoe/runtime/moe_layer.hpp"

namespace epmoe {

/// A layer with seeded random weights in memory, made expert by expert when asked: every rank can make any expert and
/// gets the same values. Uniform with variance 1 / fan in, rounded to `dtype` (f32, bf16 or f16). Local, not
/// thread-safe.
class RandomLayer {
 public:
  RandomLayer(const MoeConfig& config, DType dtype, std::uint64_t seed, std::int64_t layer = 0);
  ~RandomLayer();
  /// Views of the latest expert asked for live until the next one is asked for, or this object goes.
  [[nodiscard]] LayerSource source();

 private:
  struct Weights;
  std::unique_ptr<Weights> weights_;
};

/// The model `epmoe run` makes without a checkpoint: Qwen3-MoE's shape, small.
MoeConfig default_model_config();

/// x [tokens, hidden] f32 ~ N(0, 1), a function of (seed, global row, column) only.
void random_hidden_states(std::uint64_t seed, std::int64_t first_row, MatrixView x);

}  // namespace epmoe
