#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "route/routed.hpp"

namespace epmoe::test {
namespace {

using Score = RoutingConfig::Score;
using GroupScore = RoutingConfig::GroupScore;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

RoutingConfig routing(Score score, bool biased, std::int64_t groups, std::int64_t top_groups, bool renormalize) {
  RoutingConfig r;
  r.score = score;
  r.has_correction_bias = biased;
  r.groups = groups;
  r.top_groups = top_groups;
  r.group_score = biased ? GroupScore::sum_of_top2 : GroupScore::max;
  r.renormalize = renormalize;
  return r;
}

OwnedRouting route_row(const RouterCase& c, const std::vector<float>& row, const std::vector<float>& bias = {}) {
  const MoeConfig config = moe_config(c);
  return route(*make_router(config, bias), config, row);
}

TEST(SpecialValues, TheLowestIndexWinsTies) {
  for (const Score score : {Score::softmax, Score::sigmoid})
    for (const bool biased : {false, true})
      for (const std::int64_t groups : {1, 4}) {
        const RouterCase c{16, 6, routing(score, biased, groups, groups == 1 ? 1 : 2, false)};
        const OwnedRouting out =
            route_row(c, std::vector<float>(16, 0.25F), std::vector<float>(biased ? 16 : 0, -0.5F));
        for (std::int64_t j = 0; j < 6; ++j) EXPECT_EQ(out.view().ids(0, j), j) << "groups " << groups;
      }
}

TEST(SpecialValues, ATieBehindTheBestGoesToTheLowestIndex) {
  std::vector<float> row(8, 1.0F);
  row[5] = 2.0F;
  const OwnedRouting out = route_row({8, 3, {}}, row);
  EXPECT_EQ(out.view().ids(0, 0), 5);
  EXPECT_EQ(out.view().ids(0, 1), 0);
  EXPECT_EQ(out.view().ids(0, 2), 1);
}

TEST(SpecialValues, NonFiniteLogitsGiveDistinctIdsAndFiniteWeights) {
  for (const Score score : {Score::softmax, Score::sigmoid})
    for (const bool biased : {false, true})
      for (const std::int64_t groups : {1, 4})
        for (const bool renormalize : {false, true}) {
          SCOPED_TRACE(fmt::format("score {} biased {} groups {} renormalize {}", static_cast<int>(score), biased,
                                   groups, renormalize));
          const RouterCase c{16, 6, routing(score, biased, groups, groups == 1 ? 1 : 2, renormalize)};
          std::vector<float> rows = random_matrix(12, 16, 21);
          const auto set = [&](int row, float value, std::initializer_list<int> columns) {
            for (const int e : columns) rows[static_cast<std::size_t>(row * 16 + e)] = value;
          };
          set(0, kNaN, {3});
          set(1, kNaN, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
          set(2, kInf, {7});
          set(3, kInf, {1, 2, 8, 9});
          set(4, -kInf, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
          set(5, -kInf, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
          set(6, 3e38F, {4});
          set(7, -3e38F, {0, 5, 10});
          set(8, kInf, {0});
          set(8, -kInf, {1});
          set(8, kNaN, {2});
          set(9, -200.0F, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
          set(10, kInf, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
          const MoeConfig config = moe_config(c);
          const OwnedRouting out =
              route(*make_router(config, biased ? random_matrix(1, 16, 22) : std::vector<float>{}), config, rows);
          expect_distinct_and_finite(out.view(), 16);
        }
}

TEST(SpecialValues, ANaNSpoilsASoftmaxRowButOneSigmoidOnly) {
  std::vector<float> rows(16, 0.0F);  // two tokens of eight experts
  rows[2] = kNaN;
  for (int e = 0; e < 8; ++e) rows[static_cast<std::size_t>(8 + e)] = static_cast<float>(e);
  RoutingConfig r;
  r.renormalize = true;
  const OwnedRouting soft = route_row({8, 2, r}, rows);
  EXPECT_EQ(soft.view().ids(0, 0), 0);
  EXPECT_EQ(soft.view().ids(0, 1), 1);
  EXPECT_EQ(soft.view().weights(0, 0), 0.0F);
  EXPECT_EQ(soft.view().ids(1, 0), 7);  // the next row is as if nothing had happened
  EXPECT_GT(soft.view().weights(1, 0), 0.7F);
  r.score = Score::sigmoid;
  const OwnedRouting sigmoid = route_row({8, 3, r}, rows);
  EXPECT_EQ(sigmoid.view().ids(0, 0), 0);
  EXPECT_EQ(sigmoid.view().ids(0, 1), 1);
  EXPECT_EQ(sigmoid.view().ids(0, 2), 3);
  EXPECT_NEAR(sigmoid.view().weights(0, 2), 1.0F / 3.0F, 1e-6);
}

TEST(SpecialValues, MaskedGroupsLoseToNegativeScoresOfKeptOnes) {
  // Groups {0..3} and {4..7}; with a mask of 0 expert 4 (masked, 0) would beat expert 2 (kept, about -0.4).
  RoutingConfig r = routing(Score::sigmoid, true, 2, 1, false);
  const std::vector<float> logits(8, 0.0F);
  const std::vector<float> bias{1.0F, 0.5F, -0.9F, -1.2F, 0.1F, 0.1F, 0.1F, 0.1F};
  const OwnedRouting out = route_row({8, 4, r}, logits, bias);
  for (std::int64_t j = 0; j < 4; ++j) {
    EXPECT_EQ(out.view().ids(0, j), j);
    EXPECT_EQ(out.view().weights(0, j), 0.5F);  // the bias does not weigh
  }
}

TEST(SpecialValues, AnExpertChosenForWantOfOthersWeighsNothing) {
  // Experts 0 and 2 have no score: they come last in spite of their bias, by index, and weigh 0.
  RoutingConfig r = routing(Score::sigmoid, true, 1, 1, true);
  const OwnedRouting out = route_row({4, 4, r}, {kNaN, 0.0F, kNaN, 1.0F}, {9.0F, 0.0F, 9.0F, 0.0F});
  const std::int32_t ids[] = {3, 1, 0, 2};
  for (std::int64_t j = 0; j < 4; ++j) EXPECT_EQ(out.view().ids(0, j), ids[j]);
  EXPECT_NEAR(out.view().weights(0, 0) + out.view().weights(0, 1), 1.0F, 1e-6);
  EXPECT_EQ(out.view().weights(0, 2), 0.0F);
  EXPECT_EQ(out.view().weights(0, 3), 0.0F);
  expect_distinct_and_finite(out.view(), 4);
}

TEST(SpecialValues, ASumOfZeroIsDividedByOne) {
  RoutingConfig r;
  r.score = Score::sigmoid;
  r.renormalize = true;
  const OwnedRouting out = route_row({4, 2, r}, std::vector<float>(4, -kInf));
  EXPECT_EQ(out.view().weights(0, 0), 0.0F);
  EXPECT_EQ(out.view().weights(0, 1), 0.0F);
}

}  // namespace
}  // namespace epmoe::test
