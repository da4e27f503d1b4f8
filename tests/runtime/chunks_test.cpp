#include "runtime/chunks.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "support/world.hpp"

namespace epmoe {
namespace {

DispatchedRouting rows_with(const std::vector<std::int64_t>& entries) {
  DispatchedRouting routing;
  for (const auto n : entries) routing.row_begin.push_back(routing.row_begin.back() + n);
  return routing;
}

TEST(CutChunks, CoversAllRowsInOrderWithinBothLimits) {
  const auto routing = rows_with({3, 1, 0, 5, 2, 2, 9, 0, 1});
  for (std::int64_t rows : {1, 2, 3, 100})
    for (std::int64_t entries : {1, 3, 5, 100}) {
      std::int64_t next = 0;
      for (const auto& chunk : cut_chunks(routing, {rows, entries})) {
        EXPECT_EQ(chunk.first_row, next);
        EXPECT_GE(chunk.rows, 1);
        EXPECT_LE(chunk.rows, rows);
        const auto begin = routing.row_begin[static_cast<std::size_t>(chunk.first_row)];
        const auto end = routing.row_begin[static_cast<std::size_t>(chunk.first_row + chunk.rows)];
        if (chunk.rows > 1) {
          EXPECT_LE(end - begin, entries);
        }
        next += chunk.rows;
      }
      EXPECT_EQ(next, routing.rows());
    }
}

TEST(CutChunks, NoRowsNoChunks) {
  EXPECT_TRUE(cut_chunks(rows_with({}), {1, 1}).empty());
}

TEST(ChunkLimits, KeepTheWorkspaceWithinTheBudget) {
  ExpertsConfig config;
  config.shape.hidden = 100;
  config.shape.intermediate = 60;
  config.shape.experts = config.local_experts = 4;
  config.shape.top_k = 2;
  const test::TestContext context;
  const auto experts = make_experts("native", config, context);
  KernelConfig kernel;
  kernel.chunk_budget_bytes = 1 << 20;
  const auto limits = chunk_limits(*experts, kernel);
  const auto shapes = experts->workspace_shapes(limits.entries, limits.entries);
  const auto bytes = shapes.workspace13_bytes + shapes.workspace2_bytes + limits.entries * 100 * 4;
  EXPECT_LE(bytes, kernel.chunk_budget_bytes + (64 << 10));  // the formula's own rounding per expert
  EXPECT_GT(bytes, kernel.chunk_budget_bytes / 2);
  kernel.chunking = false;
  EXPECT_GT(chunk_limits(*experts, kernel).rows, 1LL << 60U);
}

}  // namespace
}  // namespace epmoe
