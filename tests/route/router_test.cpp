#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "epmoe/core/error.hpp"
#include "route/reference.hpp"
#include "route/routed.hpp"

namespace epmoe::test {
namespace {

using Score = RoutingConfig::Score;
using GroupScore = RoutingConfig::GroupScore;

constexpr std::int64_t kTokens = 40;

/// Ids equal wherever f32 can tell the deciding values apart, weights within rounding.
void expect_as_reference(const RouterCase& c) {
  const MoeConfig config = moe_config(c);
  SCOPED_TRACE(fmt::format("E {} k {} groups {}/{}", c.experts, c.top_k, c.routing.top_groups, c.routing.groups));
  const auto logits = random_matrix(kTokens, c.experts, 11, 2.0F);
  const auto bias = c.routing.has_correction_bias ? random_matrix(1, c.experts, 12, 0.3F) : std::vector<float>{};
  const auto router = make_router(config, bias);
  const OwnedRouting owned = route(*router, config, logits);
  const Routing routing = owned.view();
  expect_distinct_and_finite(routing, c.experts);
  int compared = 0;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    const auto want = reference_routing(logits.data() + t * c.experts, config, bias);
    if (want.margin < 1e-6 * (c.experts > 64 ? 0.01 : 1.0)) continue;
    ++compared;
    for (std::int64_t j = 0; j < c.top_k; ++j) {
      const auto i = static_cast<std::size_t>(j);
      EXPECT_EQ(routing.ids(t, j), want.ids[i]) << "token " << t << " k " << j;
      EXPECT_NEAR(routing.weights(t, j), want.weights[i], 2e-6 * std::abs(want.weights[i]) + 1e-12)
          << "token " << t << " k " << j;
    }
  }
  if (c.top_k <= 8) {
    EXPECT_GT(compared, kTokens / 2);
  }
}

TEST(Router, UngroupedMethodsMatchTheReference) {
  for (const std::int64_t experts : {6, 8, 16, 60, 64, 128, 256, 512, 1024})
    for (const std::int64_t top_k : {std::int64_t{1}, std::int64_t{2}, std::int64_t{4}, std::int64_t{6},
                                     std::int64_t{8}, std::int64_t{22}, experts}) {
      if (top_k > experts || (top_k == experts && experts > 256)) continue;
      for (const Score score : {Score::softmax, Score::sigmoid})
        for (const bool biased : {false, true})
          for (const bool renormalize : {false, true}) {
            RoutingConfig r;
            r.score = score;
            r.has_correction_bias = biased;
            r.renormalize = renormalize;
            r.renormalize_epsilon = biased ? 1e-20F : 0.0F;
            r.scaling_factor = biased ? 2.5F : 1.0F;
            expect_as_reference({experts, top_k, r});
          }
    }
}

TEST(Router, GroupedMethodsMatchTheReference) {
  struct Shape {
    std::int64_t experts, top_k, groups, top_groups;
  };
  for (const Shape& s : {Shape{16, 2, 8, 2}, Shape{128, 2, 8, 2}, Shape{256, 8, 8, 4}, Shape{384, 8, 1, 1},
                         Shape{12, 4, 3, 2}, Shape{16, 4, 4, 4}, Shape{16, 8, 4, 2}})
    for (const Score score : {Score::softmax, Score::sigmoid})
      for (const GroupScore group_score : {GroupScore::max, GroupScore::sum_of_top2})
        for (const bool biased : {false, true}) {
          RoutingConfig r;
          r.score = score;
          r.has_correction_bias = biased;
          r.groups = s.groups;
          r.top_groups = s.top_groups;
          r.group_score = group_score;
          r.renormalize = biased;
          r.renormalize_epsilon = 1e-20F;
          r.scaling_factor = 16.0F;
          expect_as_reference({s.experts, s.top_k, r});
        }
}

TEST(Router, OneThreadAndManyGiveTheSameBits) {
  RoutingConfig r;
  r.renormalize = true;
  const MoeConfig config = moe_config({60, 4, r});
  const auto logits = random_matrix(301, 60, 3);
  const auto router = make_router(config);
  const OwnedRouting one = route(*router, config, logits, 1);
  const OwnedRouting many = route(*router, config, logits, 3);
  for (std::int64_t t = 0; t < 301; ++t)
    for (std::int64_t j = 0; j < 4; ++j) {
      EXPECT_EQ(one.view().ids(t, j), many.view().ids(t, j));
      EXPECT_EQ(one.view().weights(t, j), many.view().weights(t, j));
    }
}

TEST(Router, KnowsItsMethods) {
  RoutingConfig r;
  EXPECT_EQ(make_router(moe_config({8, 2, r}))->name(), "softmax_topk");
  r.score = Score::sigmoid;
  EXPECT_EQ(make_router(moe_config({8, 2, r}))->name(), "sigmoid_topk");
  r.groups = 4;
  r.top_groups = 2;
  EXPECT_EQ(make_router(moe_config({8, 2, r}))->name(), "grouped_topk");
  r.groups = r.top_groups = 1;
  r.has_correction_bias = true;
  EXPECT_EQ(make_router(moe_config({8, 2, r}), std::vector<float>(8))->name(), "biased_topk");
}

TEST(Router, StridesOfAllThreeViewsAreHonoured) {
  RoutingConfig r;
  r.renormalize = true;
  const MoeConfig config = moe_config({60, 4, r});
  constexpr std::int64_t kStride = 64;
  const auto dense = random_matrix(kTokens, 60, 5);
  std::vector<float> wide(kTokens * kStride, 1e30F);  // padding that would win every choice
  for (std::int64_t t = 0; t < kTokens; ++t)
    for (std::int64_t e = 0; e < 60; ++e)
      wide[static_cast<std::size_t>(t * kStride + e)] = dense[static_cast<std::size_t>(t * 60 + e)];
  std::vector<std::int32_t> ids(kTokens * 7, -9);
  std::vector<float> weights(kTokens * 5, -9.0F);
  const TestContext context;
  const auto router = make_router(config);
  router->route({wide.data(), kTokens, 60, kStride}, {ids.data(), kTokens, 4, 7}, {weights.data(), kTokens, 4, 5},
                context);
  const OwnedRouting want = route(*router, config, dense);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t j = 0; j < 4; ++j) {
      EXPECT_EQ(ids[static_cast<std::size_t>(t * 7 + j)], want.view().ids(t, j));
      EXPECT_EQ(weights[static_cast<std::size_t>(t * 5 + j)], want.view().weights(t, j));
    }
    EXPECT_EQ(ids[static_cast<std::size_t>(t * 7 + 4)], -9);
    EXPECT_EQ(weights[static_cast<std::size_t>(t * 5 + 4)], -9.0F);
  }
}

TEST(Router, ZeroTokensAreFine) {
  const MoeConfig config = moe_config({8, 2, {}});
  const TestContext context;
  EXPECT_NO_THROW(make_router(config)->route({nullptr, 0, 8, 8}, {nullptr, 0, 2, 2}, {nullptr, 0, 2, 2}, context));
}

TEST(Router, WrongShapesAreInputErrors) {
  const TestContext context;
  const auto router = make_router(moe_config({8, 2, {}}));
  std::vector<float> logits(24), weights(6);
  std::vector<std::int32_t> ids(6);
  EXPECT_THROW(router->route({logits.data(), 3, 7, 8}, {ids.data(), 3, 2, 2}, {weights.data(), 3, 2, 2}, context),
               InputError);
  EXPECT_THROW(router->route({logits.data(), 3, 8, 8}, {ids.data(), 2, 2, 2}, {weights.data(), 3, 2, 2}, context),
               InputError);
  EXPECT_THROW(router->route({logits.data(), 3, 8, 8}, {ids.data(), 3, 1, 2}, {weights.data(), 3, 2, 2}, context),
               InputError);
}

TEST(Router, SettingsThatDoNotFitAreConfigErrors) {
  const auto refused = [](std::int64_t experts, std::int64_t top_k, RoutingConfig r, std::vector<float> bias = {}) {
    EXPECT_THROW(make_router(moe_config({experts, top_k, r}), std::move(bias)), ConfigError);
  };
  refused(0, 1, {});
  refused(8, 0, {});
  refused(8, 9, {});
  RoutingConfig grouped;
  grouped.groups = 3;
  refused(8, 2, grouped);  // 8 % 3
  grouped.groups = 4;
  grouped.top_groups = 5;
  refused(8, 2, grouped);
  grouped.top_groups = 1;
  refused(8, 3, grouped);  // one group holds two
  grouped.groups = 8;
  grouped.top_groups = 4;
  grouped.group_score = GroupScore::sum_of_top2;
  refused(8, 2, grouped);  // groups of one
  RoutingConfig biased;
  biased.has_correction_bias = true;
  refused(8, 2, biased);
  refused(8, 2, {}, std::vector<float>(8));
  std::vector<float> bias(8);
  bias[3] = std::nanf("");
  EXPECT_THROW(make_router(moe_config({8, 2, biased}), bias), InputError);
  RoutingConfig scaled;
  scaled.scaling_factor = HUGE_VALF;
  refused(8, 2, scaled);
}

}  // namespace
}  // namespace epmoe::test
