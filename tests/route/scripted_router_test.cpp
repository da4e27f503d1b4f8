#include "epmoe/route/scripted_router.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "epmoe/core/error.hpp"

namespace epmoe::test {
namespace {

constexpr Script kAll[] = {Script::uniform, Script::zipf,      Script::hot_expert, Script::hot_rank,
                           Script::none,    Script::some_none, Script::duplicated};

std::vector<double> first_choices(Script script, std::int64_t tokens, std::int64_t experts, std::int64_t top_k) {
  const auto placement = Placement::linear(experts, 4);
  const auto owned = scripted_routing(script, tokens, top_k, *placement, 7, 0);
  std::vector<double> share(static_cast<std::size_t>(experts));
  for (std::int64_t t = 0; t < tokens; ++t)
    share[static_cast<std::size_t>(owned.view().ids(t, 0))] += 1.0 / static_cast<double>(tokens);
  return share;
}

TEST(ScriptedRouting, UniformIsUniform) {
  const std::int64_t tokens = 20000;
  for (const double share : first_choices(Script::uniform, tokens, 16, 3)) EXPECT_NEAR(share, 1.0 / 16, 0.01);
  const auto placement = Placement::linear(16, 4);
  const auto owned = scripted_routing(Script::uniform, tokens, 3, *placement, 7, 0);
  std::vector<double> share(16);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t j = 0; j < 3; ++j)
      share[static_cast<std::size_t>(owned.view().ids(t, j))] += 1.0 / static_cast<double>(3 * tokens);
  for (const double s : share) EXPECT_NEAR(s, 1.0 / 16, 0.006);
}

TEST(ScriptedRouting, ZipfFollowsItsLaw) {
  double harmonic = 0.0;
  for (int e = 0; e < 16; ++e) harmonic += 1.0 / (e + 1);
  const auto share = first_choices(Script::zipf, 20000, 16, 3);
  for (std::size_t e = 0; e < 16; ++e) EXPECT_NEAR(share[e], 1.0 / (static_cast<double>(e + 1) * harmonic), 0.012) << e;
}

TEST(ScriptedRouting, IdsAreDistinctAndWeightsAreAProbability) {
  for (const Script script : kAll)
    for (const std::int64_t experts : {1, 8, 60})
      for (const std::int64_t top_k : {std::int64_t{1}, std::int64_t{4}, experts}) {
        if (top_k > experts) continue;
        SCOPED_TRACE(fmt::format("{} E {} k {}", name(script), experts, top_k));
        const auto placement = Placement::round_robin(experts, 3);
        const auto owned = scripted_routing(script, 50, top_k, *placement, 1, 100, 0);
        const Routing routing = owned.view();
        for (std::int64_t t = 0; t < 50; ++t) {
          std::set<std::int32_t> seen;
          std::int64_t entries = 0;
          float sum = 0.0F;
          for (std::int64_t j = 0; j < top_k; ++j) {
            const std::int32_t id = routing.ids(t, j);
            ASSERT_GE(id, kNoExpert);
            ASSERT_LT(id, experts);
            EXPECT_EQ(std::isnan(routing.weights(t, j)), id == kNoExpert);
            if (id == kNoExpert) continue;
            ++entries;
            seen.insert(id);
            sum += routing.weights(t, j);
            EXPECT_GT(routing.weights(t, j), 0.0F);
          }
          const auto distinct = static_cast<std::int64_t>(seen.size());
          if (script == Script::none) {
            EXPECT_EQ(entries, 0);
          } else if (script == Script::duplicated) {
            EXPECT_EQ(distinct, 1);
          } else if (script == Script::hot_rank) {
            const auto owns = static_cast<std::int64_t>(placement->local_slots(0).size());
            EXPECT_EQ(distinct, std::min(top_k, owns));
            for (const auto id : seen) EXPECT_EQ(id % 3, 0);
          } else {
            EXPECT_EQ(distinct, entries);
          }
          if (entries == top_k) {
            EXPECT_NEAR(sum, 1.0F, 1e-5);
          }
          if (script == Script::hot_expert) {
            EXPECT_EQ(routing.ids(t, 0), 0);
          }
        }
      }
}

TEST(ScriptedRouting, AnySplitOverRanksGivesTheSame) {
  const auto placement = Placement::linear(60, 4);
  for (const Script script : kAll) {
    const auto whole = scripted_routing(script, 90, 4, *placement, 5, 1000, 2);
    std::int64_t first = 0;
    for (const std::int64_t part : {0, 1, 37, 52}) {
      const auto piece = scripted_routing(script, part, 4, *placement, 5, 1000 + first, 2);
      for (std::int64_t t = 0; t < part; ++t)
        for (std::int64_t j = 0; j < 4; ++j) {
          EXPECT_EQ(piece.view().ids(t, j), whole.view().ids(first + t, j)) << name(script);
          if (piece.view().ids(t, j) == kNoExpert) continue;
          EXPECT_EQ(piece.view().weights(t, j), whole.view().weights(first + t, j)) << name(script);
        }
      first += part;
    }
    EXPECT_EQ(first, 90);
  }
}

TEST(ScriptedRouting, AThirdOfSomeNoneIsNone) {
  const auto placement = Placement::linear(8, 2);
  const auto owned = scripted_routing(Script::some_none, 5000, 4, *placement, 3, 0);
  int none = 0;
  for (std::int64_t t = 0; t < 5000; ++t)
    for (std::int64_t j = 0; j < 4; ++j) none += owned.view().ids(t, j) == kNoExpert ? 1 : 0;
  EXPECT_NEAR(none / 20000.0, 1.0 / 3, 0.02);
}

TEST(ScriptedRouting, SeedsDiffer) {
  const auto placement = Placement::linear(60, 4);
  const auto a = scripted_routing(Script::uniform, 50, 4, *placement, 1, 0);
  const auto b = scripted_routing(Script::uniform, 50, 4, *placement, 2, 0);
  int equal = 0;
  for (std::int64_t t = 0; t < 50; ++t) equal += a.view().ids(t, 0) == b.view().ids(t, 0) ? 1 : 0;
  EXPECT_LT(equal, 10);
}

TEST(ScriptedRouting, ARankWithoutExpertsGetsNoRows) {
  const auto placement = Placement::linear(2, 4);
  const auto owned = scripted_routing(Script::hot_rank, 5, 2, *placement, 1, 0, 3);
  for (std::int64_t t = 0; t < 5; ++t) EXPECT_EQ(owned.view().ids(t, 1), kNoExpert);
}

TEST(ScriptedRouting, OutOfRangeIsAnInputError) {
  const auto placement = Placement::linear(8, 2);
  EXPECT_THROW(scripted_routing(Script::uniform, 5, 9, *placement, 1, 0), InputError);
  EXPECT_THROW(scripted_routing(Script::uniform, 5, 0, *placement, 1, 0), InputError);
  EXPECT_THROW(scripted_routing(Script::hot_expert, 5, 2, *placement, 1, 0, 8), InputError);
  EXPECT_THROW(scripted_routing(Script::hot_rank, 5, 2, *placement, 1, 0, 2), InputError);
  EXPECT_NO_THROW(scripted_routing(Script::duplicated, 5, 9, *placement, 1, 0));
}

}  // namespace
}  // namespace epmoe::test
