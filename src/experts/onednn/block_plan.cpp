#include "experts/onednn/block_plan.hpp"

#include <algorithm>
#include <bit>

namespace epmoe::onednn {

std::int64_t bucket_rows(std::int64_t rows) {
  if (rows <= 8) return rows;
  const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
  return round_up(rows, power / 8);
}

std::vector<std::int64_t> all_buckets() {
  std::vector<std::int64_t> buckets;
  for (std::int64_t rows = 1; rows <= kMaxBlockRows; rows = buckets.back() + 1) buckets.push_back(bucket_rows(rows));
  return buckets;
}

BlockPlan plan_blocks(const ExpertIndex& index) {
  BlockPlan plan;
  const auto experts = static_cast<std::int64_t>(index.expert_begin.size()) - 1;
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t begin = index.expert_begin[static_cast<std::size_t>(e)];
    const std::int64_t count = index.expert_begin[static_cast<std::size_t>(e) + 1] - begin;
    const std::int64_t pieces = ceil_div(count, kMaxBlockRows);
    for (std::int64_t p = 0; p < pieces; ++p) {  // equal pieces: 257 rows are 129 + 128, not 256 + 1
      const std::int64_t from = count * p / pieces;
      const std::int64_t to = count * (p + 1) / pieces;
      plan.blocks.push_back({e, begin + from, to - from, bucket_rows(to - from), plan.scratch_rows});
      plan.scratch_rows += plan.blocks.back().bucket;
      plan.max_bucket = std::max(plan.max_bucket, plan.blocks.back().bucket);
    }
  }
  std::stable_sort(plan.blocks.begin(), plan.blocks.end(),
                   [](const Block& a, const Block& b) { return a.bucket > b.bucket; });
  return plan;
}

std::int64_t max_scratch_rows(std::int64_t entries) {
  return entries + entries / 4;
}

bool side_by_side(const BlockPlan& plan, int workers) {
  if (workers <= 1) return true;
  // Below a few rows a product costs what reading its weights costs, whatever the rows.
  constexpr std::int64_t kFloorRows = 8;
  std::vector<std::int64_t> load(static_cast<std::size_t>(workers), 0);
  std::int64_t total = 0;
  for (const Block& block : plan.blocks) {
    const std::int64_t cost = std::max(block.bucket, kFloorRows);
    *std::min_element(load.begin(), load.end()) += cost;
    total += cost;
  }
  const std::int64_t longest = *std::max_element(load.begin(), load.end());
  return longest * workers * 4 <= total * 5;  // all threads in one product lose about a fifth to barriers
}

}  // namespace epmoe::onednn
