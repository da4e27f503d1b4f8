#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "core/expect_error.hpp"
#include "core/random_batch.hpp"

namespace epmoe {
namespace {

using test::expect_error;

/// The definition: sort (slot, row, entry) of the range.
void expect_index(const ExpertBatch& batch, std::int64_t first_row, std::int64_t rows) {
  const ExpertIndex index = index_by_expert(batch, first_row, rows);
  std::vector<std::tuple<std::int32_t, std::int64_t, std::int64_t>> naive;
  std::int64_t position = 0;
  for (std::int64_t r = first_row; r < first_row + rows; ++r)
    for (auto i = batch.routing.row_begin[static_cast<std::size_t>(r)];
         i < batch.routing.row_begin[static_cast<std::size_t>(r) + 1]; ++i)
      naive.emplace_back(batch.routing.local_slot[static_cast<std::size_t>(i)], r, position++);
  std::sort(naive.begin(), naive.end());

  EXPECT_EQ(index.first_row, first_row);
  EXPECT_EQ(index.rows, rows);
  EXPECT_EQ(index.first_entry, batch.routing.row_begin[static_cast<std::size_t>(first_row)]);
  EXPECT_EQ(index.entries, position);
  ASSERT_EQ(index.expert_begin.size(), static_cast<std::size_t>(batch.local_experts) + 1);
  ASSERT_EQ(index.row.size(), naive.size());
  ASSERT_EQ(index.entry.size(), naive.size());
  EXPECT_EQ(index.expert_begin.front(), 0);
  EXPECT_EQ(index.expert_begin.back(), position);
  for (std::size_t e = 0; e + 1 < index.expert_begin.size(); ++e)
    for (std::int64_t at = index.expert_begin[e]; at < index.expert_begin[e + 1]; ++at) {
      const auto i = static_cast<std::size_t>(at);
      EXPECT_EQ(std::make_tuple(static_cast<std::int32_t>(e), index.row[i], index.entry[i]), naive[i]);
    }
}

TEST(IndexByExpert, EqualsANaiveSort) {
  for (const std::int64_t rows : {0, 1, 5, 200})
    for (const std::int64_t experts : {1, 3, 60, 1000}) {
      const auto batch = test::random_batch(static_cast<std::uint64_t>(rows * 7 + experts), rows, experts, 4);
      for (const std::int64_t chunk : {1, 7, 128, 1000})
        for (std::int64_t first = 0; first <= rows; first += chunk)
          expect_index(batch, first, std::min(chunk, rows - first));
    }
}

TEST(IndexByExpert, WithoutLocalExperts) {
  expect_index(test::random_batch(1, 5, 0, 4), 0, 5);
}

TEST(IndexByExpert, BadInputIsAnError) {
  auto batch = test::random_batch(1, 5, 4, 4);
  expect_error<InternalError>([&] { (void)index_by_expert(batch, 3, 3); }, "[3, 6)", "batch of 5");
  batch.routing.local_slot[0] = 4;
  expect_error<InternalError>([&] { (void)index_by_expert(batch, 0, 5); }, "entry 0", "slot 4", "[0, 4)");
}

TEST(StepPlan, CountsTokens) {
  StepPlan plan;
  EXPECT_EQ(plan.max_tokens(), 0);
  EXPECT_EQ(plan.total_tokens(), 0);
  plan.tokens = {500, 0, 1LL << 40, 256};
  EXPECT_EQ(plan.max_tokens(), 1LL << 40);
  EXPECT_EQ(plan.total_tokens(), (1LL << 40) + 756);
  EXPECT_EQ(plan.first_token(0), 0);
  EXPECT_EQ(plan.first_token(2), 500);
  EXPECT_EQ(plan.first_token(3), (1LL << 40) + 500);
}

TEST(RowLocator, CountsThroughSegments) {
  std::vector<std::byte> a(3 * 16), b(2 * 32);
  const float scale = 0.25F;
  std::memcpy(b.data() + 32 + 8, &scale, 4);
  ExpertBatch batch;
  batch.segments = {{a.data(), 16, 3, 8, 0}, {nullptr, 0, 0, 0, 1}, {b.data(), 32, 2, 8, 2}};
  batch.routing.row_begin = {0, 0, 0, 0, 0, 0};
  const RowLocator rows(batch);
  EXPECT_EQ(rows.row(0), a.data());
  EXPECT_EQ(rows.row(2), a.data() + 32);
  EXPECT_EQ(rows.row(3), b.data());
  EXPECT_EQ(rows.row(4), b.data() + 32);
  EXPECT_EQ(rows.scale(4), 0.25F);
  batch.segments[2].count = 1;
  expect_error<InternalError>([&] { (void)RowLocator(batch); }, "4 rows", "routing for 5");
}

}  // namespace
}  // namespace epmoe
