#include "epmoe/prepare_finalize/exchange_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "epmoe/core/random.hpp"

namespace epmoe {
namespace {

OwnedRouting random_routing(std::int64_t tokens, std::int64_t top_k, std::int64_t experts, std::uint64_t seed,
                            std::int64_t first_token) {
  OwnedRouting routing(tokens, top_k);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t k = 0; k < top_k; ++k) {
      const auto bits = random_bits(seed, static_cast<std::uint64_t>(first_token + t), static_cast<std::uint64_t>(k));
      routing.ids()(t, k) =
          bits % 7 == 0 ? kNoExpert : static_cast<std::int32_t>((bits >> 8) % static_cast<std::uint64_t>(experts));
      routing.weights()(t, k) = static_cast<float>(bits % 1000) / 1000.0F;
    }
  return routing;
}

/// Checks a plan against the routing entry by entry; returns the entries found.
std::int64_t check_plan(const ExchangePlan& plan, const Routing& routing, const Placement& placement,
                        std::int64_t first_token) {
  EXPECT_EQ(static_cast<int>(plan.rank_begin.size()), placement.ranks() + 1);
  EXPECT_EQ(plan.rank_begin.back(), plan.rows());
  std::int64_t seen = 0;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    std::int64_t last_token = -1;
    for (auto row = plan.rank_begin[static_cast<std::size_t>(rank)];
         row < plan.rank_begin[static_cast<std::size_t>(rank) + 1]; ++row) {
      const auto n = static_cast<std::size_t>(row);
      const auto token = plan.row_token[n];
      EXPECT_GT(token, last_token) << "stable order, each token once per rank";
      last_token = token;
      int last_k = -1;
      EXPECT_GT(plan.row_entry_begin[n + 1], plan.row_entry_begin[n]);
      for (auto e = plan.row_entry_begin[n]; e < plan.row_entry_begin[n + 1]; ++e) {
        const auto& entry = plan.entries[static_cast<std::size_t>(e)];
        EXPECT_GT(entry.k, last_k);
        last_k = entry.k;
        const auto logical = routing.ids(token, entry.k);
        EXPECT_EQ(entry.physical_expert, placement.physical(logical, static_cast<std::uint64_t>(first_token + token)));
        EXPECT_EQ(placement.slot(entry.physical_expert).rank, rank);
        EXPECT_EQ(entry.weight, routing.weights(token, entry.k));
        ++seen;
      }
    }
  }
  std::int64_t wanted = 0;
  for (std::int64_t t = 0; t < routing.tokens(); ++t)
    for (std::int64_t k = 0; k < routing.top_k(); ++k) wanted += routing.ids(t, k) != kNoExpert ? 1 : 0;
  EXPECT_EQ(seen, wanted);
  return seen;
}

TEST(ExchangePlan, EveryEntryGoesToItsOwnerOnce) {
  for (const int ranks : {1, 2, 3, 4, 8, 17})
    for (const std::int64_t experts : {1, 3, 8, 60, 130})
      for (const std::int64_t top_k : {1, 2, 8}) {
        const auto placement =
            ranks % 2 == 0 ? Placement::round_robin(experts, ranks) : Placement::linear(experts, ranks);
        const auto routing = random_routing(37, top_k, experts, 5, 11);
        check_plan(plan_exchange(routing.view(), *placement, 11), routing.view(), *placement, 11);
      }
}

TEST(ExchangePlan, ReplicasAreChosenByGlobalToken) {
  // Expert 0 twice, on ranks 0 and 2.
  const std::vector<std::int32_t> owner{0, 1, 2, 2}, logical{0, 1, 2, 0};
  const auto placement = Placement::table(3, 3, owner, logical);
  OwnedRouting routing(200, 1);
  std::fill_n(routing.ids().data, 200, 0);
  const auto plan = plan_exchange(routing.view(), *placement, 1000);
  check_plan(plan, routing.view(), *placement, 1000);
  EXPECT_GT(plan.rows_to(0), 0);
  EXPECT_EQ(plan.rows_to(1), 0);
  EXPECT_GT(plan.rows_to(2), 0);
  // The same tokens seen from another first token: the choice moves with the global index.
  const auto shifted = plan_exchange(routing.view(), *placement, 1001);
  for (std::int64_t t = 0; t + 1 < 200; ++t) {
    const auto at0 = [&](const ExchangePlan& p, std::int64_t token) {
      return std::binary_search(p.row_token.begin(), p.row_token.begin() + p.rank_begin[1], token);
    };
    EXPECT_EQ(at0(plan, t + 1), at0(shifted, t));
  }
}

TEST(ExchangePlan, DuplicatesKeepTheirEntriesInOneRow) {
  const auto placement = Placement::linear(4, 2);
  OwnedRouting routing(1, 3);
  routing.ids()(0, 0) = 3;
  routing.ids()(0, 1) = kNoExpert;
  routing.ids()(0, 2) = 3;
  routing.weights()(0, 0) = 0.25F;
  routing.weights()(0, 2) = 0.5F;
  const auto plan = plan_exchange(routing.view(), *placement, 0);
  EXPECT_EQ(plan.rows_to(0), 0);
  ASSERT_EQ(plan.rows_to(1), 1);
  ASSERT_EQ(plan.entries.size(), 2U);
  EXPECT_EQ(plan.entries[0].weight, 0.25F);
  EXPECT_EQ(plan.entries[1].k, 2);
}

TEST(ExchangePlan, NoTokensAndNoExperts) {
  const auto placement = Placement::linear(2, 4);
  EXPECT_EQ(plan_exchange(OwnedRouting(0, 4).view(), *placement, 0).rows(), 0);
  const auto plan = plan_exchange(OwnedRouting(9, 4).view(), *placement, 0);
  EXPECT_EQ(plan.rows(), 0);
  EXPECT_EQ(plan.rank_begin, std::vector<std::int64_t>(5, 0));
}

/// 1024 ranks in one process: what every source plans to send fits what every owner plans to receive.
TEST(ExchangePlan, ThousandRanksAgree) {
  constexpr int kRanks = 1024;
  constexpr std::int64_t kExperts = 2048, kTopK = 8;
  const auto placement = Placement::linear(kExperts, kRanks);
  StepPlan step;
  for (int r = 0; r < kRanks; ++r) step.tokens.push_back(r % 3 == 0 ? 0 : 1 + r % 5);
  std::vector<std::int64_t> arriving(kRanks, 0);
  std::int64_t sent = 0, entries = 0, rows_wanted = 0;
  for (int source = 0; source < kRanks; ++source) {
    const auto tokens = step.tokens[static_cast<std::size_t>(source)];
    const auto first = step.first_token(source);
    const auto routing = random_routing(tokens, kTopK, kExperts, 3, first);
    const auto plan = plan_exchange(routing.view(), *placement, first);
    entries += check_plan(plan, routing.view(), *placement, first);
    sent += plan.rows();
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::set<std::int32_t> owners;
      for (std::int64_t k = 0; k < kTopK; ++k)
        if (const auto id = routing.view().ids(t, k); id != kNoExpert) owners.insert(id / 2);
      rows_wanted += static_cast<std::int64_t>(owners.size());
    }
    for (int r = 0; r < kRanks; ++r) arriving[static_cast<std::size_t>(r)] += plan.rows_to(r);
  }
  EXPECT_EQ(sent, rows_wanted);
  EXPECT_GT(entries, sent);
  EXPECT_EQ(std::accumulate(arriving.begin(), arriving.end(), std::int64_t{0}), sent);
}

TEST(RowsPerMessage, StaysWithinTokensAndBudget) {
  StepPlan plan;
  for (const int ranks : {1, 2, 16, 64, 1024})
    for (const std::int64_t tokens : {0, 1, 100, 16384})
      for (const std::int64_t row_bytes : {64, 4224, 14400})
        for (const std::int64_t budget : {1LL, 1LL << 20, 256LL << 20}) {
          plan.tokens.assign(static_cast<std::size_t>(ranks), tokens);
          plan.tokens[0] = tokens / 2;
          const auto rows = rows_per_message(plan, 256, 8, 256 / ranks + 1, budget, ranks, 4, row_bytes);
          EXPECT_GE(rows, 1);
          EXPECT_LE(rows, std::max<std::int64_t>(1, plan.max_tokens()));
          if (rows > 1) {
            EXPECT_LE(rows * row_bytes * ranks * 4, budget);
          }
        }
}

TEST(RowsPerMessage, SavesMemoryOnlyWhereItMatters) {
  StepPlan plan;
  plan.tokens.assign(64, 4);
  // Few tokens: all of them may go to one rank without a second round trip.
  EXPECT_EQ(rows_per_message(plan, 256, 8, 4, 256LL << 20, 64, 4, 4224), 4);
  // Many tokens: 1.25 x the expected share. 8 of 256 experts, 4 of them there: 1 - (252/256)(251/255)... = 11.9 %.
  plan.tokens.assign(64, 100000);
  const auto rows = rows_per_message(plan, 256, 8, 4, 1LL << 40, 64, 4, 4224);
  EXPECT_NEAR(static_cast<double>(rows), 1.25 * 100000 * 0.1195, 150.0);
  // All experts there: all tokens come.
  EXPECT_EQ(rows_per_message(plan, 256, 8, 256, 1LL << 40, 1, 4, 4224), 100000);
}

TEST(TokenSlices, CoverAllTokensInOrder) {
  for (const std::int64_t tokens : {0, 1, 7, 100})
    for (const std::int64_t parts : {1, 2, 3, 8}) {
      std::int64_t next = 0;
      for (std::int64_t part = 0; part < parts; ++part) {
        const auto slice = token_slice(tokens, part, parts);
        EXPECT_EQ(slice.begin, next);
        EXPECT_LE(slice.count, tokens / parts + 1);
        next += slice.count;
      }
      EXPECT_EQ(next, tokens);
    }
  StepPlan plan;
  plan.step = 9;
  plan.tokens = {7, 0, 4};
  EXPECT_EQ(slice_plan(plan, 0, 3).tokens, (std::vector<std::int64_t>{3, 0, 2}));
  EXPECT_EQ(slice_plan(plan, 2, 3).tokens, (std::vector<std::int64_t>{2, 0, 1}));
  EXPECT_EQ(slice_plan(plan, 2, 3).step, 9U);
}

TEST(FindBadId, NamesTheFirst) {
  OwnedRouting routing(4, 2);
  EXPECT_FALSE(find_bad_id(routing.view(), 8).has_value());
  routing.ids()(1, 0) = 7;
  EXPECT_FALSE(find_bad_id(routing.view(), 8).has_value());
  routing.ids()(3, 1) = -2;
  routing.ids()(2, 1) = 8;
  const auto bad = find_bad_id(routing.view(), 8);
  ASSERT_TRUE(bad.has_value());
  EXPECT_EQ(bad->row, 2);
  EXPECT_EQ(bad->k, 1);
  EXPECT_EQ(bad->value, 8);
}

}  // namespace
}  // namespace epmoe
