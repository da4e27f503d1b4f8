#include "experts/onednn/block_plan.hpp"

#include <gtest/gtest.h>

#include <set>

namespace epmoe::onednn {
namespace {

/// An index of experts with these many entries.
ExpertIndex index_of(const std::vector<std::int64_t>& counts) {
  ExpertIndex index;
  index.expert_begin = {0};
  for (const auto count : counts) index.expert_begin.push_back(index.expert_begin.back() + count);
  index.entries = index.expert_begin.back();
  return index;
}

TEST(BucketRows, AreFewAndWasteAtMostAQuarter) {
  const auto buckets = all_buckets();
  EXPECT_EQ(buckets.size(), 28U);
  EXPECT_EQ(buckets.back(), kMaxBlockRows);
  const std::set<std::int64_t> known(buckets.begin(), buckets.end());
  for (std::int64_t rows = 1; rows <= kMaxBlockRows; ++rows) {
    const auto bucket = bucket_rows(rows);
    EXPECT_GE(bucket, rows);
    EXPECT_LE(bucket * 4, rows * 5) << rows;
    EXPECT_EQ(bucket_rows(bucket), bucket) << rows;
    EXPECT_TRUE(known.contains(bucket)) << rows;
  }
}

TEST(PlanBlocks, CoversEveryEntryOnceInDisjointScratchRows) {
  const auto index = index_of({0, 1, 257, 0, 9, 1000, 256, 33});
  const auto plan = plan_blocks(index);
  std::vector<int> seen(static_cast<std::size_t>(index.entries), 0);
  std::vector<int> scratch(static_cast<std::size_t>(max_scratch_rows(index.entries)), 0);
  for (const auto& block : plan.blocks) {
    EXPECT_GT(block.rows, 0);
    EXPECT_LE(block.rows, kMaxBlockRows);
    EXPECT_GE(block.begin, index.expert_begin[static_cast<std::size_t>(block.expert)]);
    EXPECT_LE(block.begin + block.rows, index.expert_begin[static_cast<std::size_t>(block.expert) + 1]);
    for (std::int64_t i = 0; i < block.rows; ++i) ++seen[static_cast<std::size_t>(block.begin + i)];
    for (std::int64_t i = 0; i < block.bucket; ++i) ++scratch.at(static_cast<std::size_t>(block.first_row + i));
  }
  for (const int times : seen) EXPECT_EQ(times, 1);
  for (const int times : scratch) EXPECT_LE(times, 1);
  EXPECT_LE(plan.scratch_rows, max_scratch_rows(index.entries));
  EXPECT_EQ(plan.max_bucket, 256);
  for (std::size_t i = 1; i < plan.blocks.size(); ++i) EXPECT_GE(plan.blocks[i - 1].bucket, plan.blocks[i].bucket);
}

TEST(PlanBlocks, ScratchRowsSufficeForAnyCounts) {
  for (std::int64_t count = 0; count <= 1100; ++count)
    EXPECT_LE(plan_blocks(index_of({count})).scratch_rows, max_scratch_rows(count)) << count;
}

TEST(PlanBlocks, OfNothingIsEmpty) {
  EXPECT_TRUE(plan_blocks(index_of({0, 0, 0})).blocks.empty());
  EXPECT_TRUE(plan_blocks(index_of({})).blocks.empty());
}

TEST(SideBySide, UnlessWorkersWouldIdle) {
  const std::vector<std::int64_t> eight(8, 1);
  EXPECT_TRUE(side_by_side(plan_blocks(index_of(eight)), 2));
  EXPECT_TRUE(side_by_side(plan_blocks(index_of({64})), 1));
  EXPECT_FALSE(side_by_side(plan_blocks(index_of({64})), 2));     // one block, one worker idle
  EXPECT_FALSE(side_by_side(plan_blocks(index_of({64, 8})), 2));  // nearly so
  EXPECT_TRUE(side_by_side(plan_blocks(index_of({64, 60})), 2));
  EXPECT_FALSE(side_by_side(plan_blocks(index_of(eight)), 64));
  EXPECT_TRUE(side_by_side(plan_blocks(index_of({512})), 2));  // two blocks of one expert
}

}  // namespace
}  // namespace epmoe::onednn
