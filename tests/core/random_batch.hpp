#pragma once
#include <vector>

#include "epmoe/core/random.hpp"
#include "epmoe/core/stage_data.hpp"

namespace epmoe::test {

/// A batch of `rows` rows without hidden values: 0 to 4 entries each, duplicates of an expert allowed.
inline ExpertBatch random_batch(std::uint64_t seed, std::int64_t rows, std::int64_t local_experts,
                                std::int64_t hidden) {
  ExpertBatch batch;
  batch.hidden = hidden;
  batch.local_experts = local_experts;
  auto& routing = batch.routing;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto row = static_cast<std::uint64_t>(r);
    const std::uint64_t count = local_experts == 0 ? 0 : random_bits(seed, row, 1000) % 5;
    for (std::uint64_t k = 0; k < count; ++k) {
      const auto slot =
          static_cast<std::int32_t>(random_bits(seed, row, k) % static_cast<std::uint64_t>(local_experts));
      routing.local_slot.push_back(slot);
      routing.physical_expert.push_back(slot);
      routing.logical_expert.push_back(slot);
      routing.k.push_back(static_cast<std::int32_t>(k));
      routing.shard.push_back(0);
      routing.weight.push_back(random_uniform(seed, row, 100 + k));
    }
    routing.row_begin.push_back(static_cast<std::int64_t>(routing.local_slot.size()));
  }
  return batch;
}

}  // namespace epmoe::test
