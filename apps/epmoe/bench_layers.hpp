#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "epmoe/core/stage_data.hpp"
#include "epmoe/experts/experts.hpp"
#include "epmoe/experts/spot_check.hpp"
#include "epmoe/runtime/random_model.hpp"

namespace epmoe::cli {

/// Seeded random weights of one layer, made expert by expert on any worker.
class BenchWeights {
 public:
  BenchWeights(const MoeConfig& shape, std::uint64_t seed, int workers);
  /// Valid until the same worker asks again.
  ExpertWeights expert(std::int32_t expert, int worker) {
    return sources_[static_cast<std::size_t>(worker)].expert(expert);
  }

 private:
  std::vector<std::unique_ptr<RandomLayer>> layers_;  // one a worker, all the same
  std::vector<LayerSource> sources_;
};

/// The same packed layer several times in memory, so that going round them finds weights that no cache holds.
struct BenchLayers {
  PackedLayout layout;
  std::vector<ExpertSlots> copies;
  std::string note;  ///< why the copies are fewer than wanted, else empty
};
/// Packs the experts once and copies them until all together pass `wanted_bytes`, as far as `most_bytes` goes. Throws
/// ConfigError when one layer does not fit.
BenchLayers make_bench_layers(const PackedLayout& layout, std::int64_t experts, BenchWeights& weights,
                              std::int64_t wanted_bytes, std::int64_t most_bytes, const ExecutionContext& context);

/// Random rows as they arrive from other ranks, with scripted routing over all experts of the layer.
struct BenchBatch {
  AlignedBuffer rows;
  ExpertBatch batch;
  std::int64_t experts_hit = 0;
};
/// `skew` is "uniform" or "zipf".
BenchBatch make_bench_batch(const MoeConfig& shape, DispatchType type, std::int64_t tokens, const std::string& skew,
                            std::uint64_t seed);

}  // namespace epmoe::cli
