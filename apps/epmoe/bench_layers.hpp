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
  /// The copy that was not used for the longest time.
  [[nodiscard]] const ExpertSlots& next() { return copies[next_++ % copies.size()]; }

 private:
  std::size_t next_ = 0;
};
/// Packs the experts once and copies them until all together pass `wanted_bytes`, as far as `most_bytes` goes. Throws
/// ConfigError when one layer does not fit.
BenchLayers make_bench_layers(const PackedLayout& layout, std::int64_t experts, BenchWeights& weights,
                              std::int64_t wanted_bytes, std::int64_t most_bytes, const ExecutionContext& context);

/// One call's rows as they arrive from other ranks, and where they go.
struct BenchBatch {
  ExpertBatch batch;
  std::int64_t experts_hit = 0;
};
/// The same random rows with routing drawn anew for every batch: what one sample has read, the next does not find in a
/// cache.
struct BenchBatches {
  AlignedBuffer rows;
  std::vector<BenchBatch> sets;
};
/// Scripted routing over all experts of the layer. `skew` is "uniform" or "zipf"; other experts are the popular ones in
/// each set.
BenchBatches make_bench_batches(const MoeConfig& shape, DispatchType type, std::int64_t tokens, const std::string& skew,
                                std::uint64_t seed, std::int64_t sets);

}  // namespace epmoe::cli
