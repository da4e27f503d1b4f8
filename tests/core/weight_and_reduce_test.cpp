#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/expect_error.hpp"
#include "core/random_batch.hpp"
#include "epmoe/core/topk_weight_and_reduce.hpp"

namespace epmoe {
namespace {

using test::expect_error;
constexpr std::int64_t kHidden = 37;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Output of entry e (counted from the range's first) in column c.
float entry_value(std::int64_t e, std::int64_t c) {
  return random_normal(77, static_cast<std::uint64_t>(e), static_cast<std::uint64_t>(c));
}

/// The definition, one value at a time.
std::vector<float> naive_sum(const ExpertBatch& batch, const ExpertIndex& index, bool skip_weights) {
  std::vector<float> sum(at(index.rows * batch.hidden));
  for (std::int64_t r = 0; r < index.rows; ++r)
    for (std::int64_t c = 0; c < batch.hidden; ++c) {
      volatile float total = 0.0F;  // keeps product and sum apart
      for (auto i = batch.routing.row_begin[at(index.first_row + r)];
           i < batch.routing.row_begin[at(index.first_row + r + 1)]; ++i) {
        const volatile float product =
            (skip_weights ? 1.0F : batch.routing.weight[at(i)]) * entry_value(i - index.first_entry, c);
        total = total + product;
      }
      sum[at(r * batch.hidden + c)] = total;
    }
  return sum;
}

std::vector<float> as_vector(const AlignedBuffer& buffer) {
  return {buffer.as<float>(), buffer.as<float>() + buffer.size() / 4};
}

class WeightAndReduce : public ::testing::TestWithParam<bool> {};

TEST_P(WeightAndReduce, ContiguousAddsInAscendingK) {
  const auto batch =
      test::random_batch(3, 50, 6, kHidden);  // rows without entries and duplicates of an expert included
  for (const auto& [first, rows] : {std::pair<std::int64_t, std::int64_t>{0, 50}, {13, 20}, {50, 0}}) {
    const auto index = index_by_expert(batch, first, rows);
    std::vector<float> output(at(index.entries * kHidden));
    for (std::int64_t e = 0; e < index.entries; ++e)
      for (std::int64_t c = 0; c < kHidden; ++c) output[at(e * kHidden + c)] = entry_value(e, c);
    const auto reduce = make_weight_and_reduce(WeightAndReduceKind::contiguous);
    const auto view = const_matrix_view(output.data(), index.entries, kHidden);
    EXPECT_EQ(as_vector(reduce->apply(batch, index, view, GetParam())), naive_sum(batch, index, GetParam()));
    // Into memory of the caller's, with a stride: the gap stays.
    std::vector<float> out(at(rows * (kHidden + 3)), kNaN);
    reduce->apply(batch, index, view, matrix_view(out.data(), rows, kHidden, kHidden + 3), GetParam());
    const auto wanted = naive_sum(batch, index, GetParam());
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < kHidden; ++c) EXPECT_EQ(out[at(r * (kHidden + 3) + c)], wanted[at(r * kHidden + c)]);
      EXPECT_TRUE(std::isnan(out[at(r * (kHidden + 3) + kHidden)]));
    }
  }
}

TEST_P(WeightAndReduce, NaiveBatchedNeverReadsPadding) {
  const auto batch = test::random_batch(4, 40, 5, kHidden);
  const auto index = index_by_expert(batch, 5, 30);
  std::int64_t most = 0;
  for (std::int64_t e = 0; e < 5; ++e) most = std::max(most, index.expert_begin[at(e + 1)] - index.expert_begin[at(e)]);
  const std::int64_t max_rows = most + 2;
  std::vector<float> output(at(5 * max_rows * kHidden), kNaN);
  for (std::int64_t e = 0; e < 5; ++e)
    for (std::int64_t i = index.expert_begin[at(e)]; i < index.expert_begin[at(e + 1)]; ++i)
      for (std::int64_t c = 0; c < kHidden; ++c)
        output[at((e * max_rows + i - index.expert_begin[at(e)]) * kHidden + c)] = entry_value(index.entry[at(i)], c);
  const auto reduce = make_weight_and_reduce(WeightAndReduceKind::naive_batched, max_rows);
  const auto sum =
      as_vector(reduce->apply(batch, index, const_matrix_view(output.data(), 5 * max_rows, kHidden), GetParam()));
  EXPECT_EQ(sum, naive_sum(batch, index, GetParam()));  // a NaN read would be unequal
  const auto small = make_weight_and_reduce(WeightAndReduceKind::naive_batched, most - 1);
  expect_error<InternalError>(
      [&] { (void)small->apply(batch, index, const_matrix_view(output.data(), 5 * (most - 1), kHidden), GetParam()); },
      "at most " + std::to_string(most - 1));
}

INSTANTIATE_TEST_SUITE_P(SkipWeights, WeightAndReduce, ::testing::Bool());

TEST(WeightAndReduceUse, NoOpPassesRowsThrough) {
  auto batch = test::random_batch(5, 10, 3, kHidden);
  const auto index = index_by_expert(batch, 2, 8);
  std::vector<float> rows(at(8 * kHidden)), out(at(8 * kHidden), kNaN);
  std::int64_t empty = 0;
  for (std::int64_t r = 0; r < 8; ++r) {
    const bool has_entries = batch.routing.row_begin[at(2 + r)] != batch.routing.row_begin[at(3 + r)];
    empty += has_entries ? 0 : 1;
    for (std::int64_t c = 0; c < kHidden; ++c) rows[at(r * kHidden + c)] = has_entries ? entry_value(r, c) : kNaN;
  }
  ASSERT_GT(empty, 0);
  ASSERT_LT(empty, 8);
  const auto reduce = make_weight_and_reduce(WeightAndReduceKind::no_op);
  reduce->apply(batch, index, const_matrix_view(rows.data(), 8, kHidden), matrix_view(out.data(), 8, kHidden), false);
  for (std::int64_t r = 0; r < 8; ++r)
    for (std::int64_t c = 0; c < kHidden; ++c) {
      const float in = rows[at(r * kHidden + c)];
      EXPECT_EQ(out[at(r * kHidden + c)], std::isnan(in) ? 0.0F : in);
    }
  auto in_place = out;
  reduce->apply(batch, index, const_matrix_view(in_place.data(), 8, kHidden), matrix_view(in_place.data(), 8, kHidden),
                false);
  EXPECT_EQ(in_place, out);
}

TEST(WeightAndReduceUse, WrongUseIsAnError) {
  const auto batch = test::random_batch(6, 4, 3, kHidden);
  const auto index = index_by_expert(batch, 0, 4);
  std::vector<float> data(at((index.entries + 4) * kHidden));
  const auto view = const_matrix_view(data.data(), index.entries, kHidden);
  expect_error<InternalError>(
      [&] { (void)make_weight_and_reduce(WeightAndReduceKind::delegate)->apply(batch, index, view, false); },
      "delegate");
  expect_error<InternalError>(
      [&] {
        (void)make_weight_and_reduce(WeightAndReduceKind::contiguous)
            ->apply(batch, index, const_matrix_view(data.data(), index.entries + 1, kHidden), false);
      },
      "expert output", std::to_string(index.entries + 1), "f32");
  for (const auto kind : {WeightAndReduceKind::delegate, WeightAndReduceKind::no_op, WeightAndReduceKind::contiguous,
                          WeightAndReduceKind::naive_batched})
    EXPECT_EQ(make_weight_and_reduce(kind, 1)->kind(), kind);
  EXPECT_EQ(name(WeightAndReduceKind::naive_batched), "naive_batched");
}

TEST(WeightAndReduceUse, ProductAndSumAreRoundedApart) {
  // 1 + 2^-23 squared needs 47 bits: a fused multiply-add would keep what is left after subtracting the product.
  const float x = 1.0F + 0x1p-23F;
  float out[5] = {}, in[5];
  for (float& value : out) value = -(1.0F + 0x1p-22F);
  for (float& value : in) value = x;
  add_weighted(out, in, x, 5);
  for (const float value : out) EXPECT_EQ(value, 0.0F);
}

}  // namespace
}  // namespace epmoe
