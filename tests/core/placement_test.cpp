#include "epmoe/core/placement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/expect_error.hpp"
#include "epmoe/core/error.hpp"

namespace epmoe {
namespace {

using test::expect_error;
using Owned = std::vector<std::vector<std::int32_t>>;  // [rank][local slot] = logical expert

Owned owned(const Placement& placement) {
  Owned result;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    result.emplace_back();
    for (const std::int32_t physical : placement.local_slots(rank)) {
      const auto& slot = placement.slot(physical);
      EXPECT_EQ(slot.rank, rank);
      EXPECT_EQ(slot.local_slot, static_cast<std::int32_t>(result.back().size()));
      result.back().push_back(slot.logical_expert);
    }
  }
  return result;
}

std::vector<std::int32_t> range(std::int32_t begin, std::int32_t end, std::int32_t step = 1) {
  std::vector<std::int32_t> values;
  for (std::int32_t i = begin; i < end; i += step) values.push_back(i);
  return values;
}

TEST(Placement, LinearTables) {
  EXPECT_EQ(owned(*Placement::linear(8, 2)), (Owned{range(0, 4), range(4, 8)}));
  EXPECT_EQ(owned(*Placement::linear(9, 2)), (Owned{range(0, 5), range(5, 9)}));
  EXPECT_EQ(owned(*Placement::linear(16, 2)), (Owned{range(0, 8), range(8, 16)}));
  EXPECT_EQ(owned(*Placement::linear(17, 2)), (Owned{range(0, 9), range(9, 17)}));
  EXPECT_EQ(owned(*Placement::linear(8, 4)), (Owned{range(0, 2), range(2, 4), range(4, 6), range(6, 8)}));
  EXPECT_EQ(owned(*Placement::linear(16, 4)), (Owned{range(0, 4), range(4, 8), range(8, 12), range(12, 16)}));
  EXPECT_EQ(owned(*Placement::linear(18, 4)), (Owned{range(0, 5), range(5, 10), range(10, 14), range(14, 18)}));
  EXPECT_EQ(owned(*Placement::linear(32, 4)), (Owned{range(0, 8), range(8, 16), range(16, 24), range(24, 32)}));
  EXPECT_EQ(owned(*Placement::linear(33, 4)), (Owned{range(0, 9), range(9, 17), range(17, 25), range(25, 33)}));
}

TEST(Placement, RoundRobinTables) {
  for (const std::int32_t ranks : {2, 4})
    for (const std::int32_t experts : {8, 9, 16, 17, 18, 32, 33}) {
      Owned wanted;
      for (std::int32_t rank = 0; rank < ranks; ++rank) wanted.push_back(range(rank, experts, ranks));
      EXPECT_EQ(owned(*Placement::round_robin(experts, ranks)), wanted) << experts << " on " << ranks;
    }
  EXPECT_EQ(owned(*Placement::round_robin(9, 2)), (Owned{{0, 2, 4, 6, 8}, {1, 3, 5, 7}}));
}

TEST(Placement, FewerExpertsThanRanks) {
  const Owned wanted = {{0}, {1}, {2}, {}, {}};
  EXPECT_EQ(owned(*Placement::linear(3, 5)), wanted);
  EXPECT_EQ(owned(*Placement::round_robin(3, 5)), wanted);
  EXPECT_EQ(owned(*Placement::linear(1, 8)).front(), range(0, 1));
}

TEST(Placement, EveryExpertHasOneOwner) {
  for (const int ranks : {1, 3, 4, 8, 1024})
    for (const std::int64_t experts : {1, 3, 8, 60, 130, 1024})
      for (const auto& placement : {Placement::linear(experts, ranks, 7), Placement::round_robin(experts, ranks, 7)}) {
        EXPECT_EQ(placement->experts(), experts);
        EXPECT_EQ(placement->ranks(), ranks);
        EXPECT_EQ(placement->epoch(), 7U);
        EXPECT_EQ(placement->physical_slots(), experts);
        std::size_t least = static_cast<std::size_t>(experts), most = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          least = std::min(least, placement->local_slots(rank).size());
          most = std::max(most, placement->local_slots(rank).size());
        }
        EXPECT_LE(most - least, 1U);
        for (std::int32_t e = 0; e < experts; ++e) {
          ASSERT_EQ(placement->replicas(e).size(), 1U);
          EXPECT_EQ(placement->slot(placement->physical(e, 12345)).logical_expert, e);
        }
      }
}

TEST(Placement, TableWithReplicas) {
  const std::vector<std::int32_t> owner = {1, 0, 2, 0, 1, 2}, logical = {0, 0, 0, 1, 2, 1};
  const auto placement = Placement::table(3, 3, owner, logical, 4);
  EXPECT_EQ(placement->physical_slots(), 6);
  EXPECT_EQ(owned(*placement), (Owned{{0, 1}, {0, 2}, {0, 1}}));
  const auto replicas = placement->replicas(0);
  EXPECT_EQ(std::vector<std::int32_t>(replicas.begin(), replicas.end()), (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(placement->replicas(2).size(), 1U);
  // The choice is a function of the token alone, and spreads tokens evenly.
  std::map<std::int32_t, int> chosen;
  for (std::uint64_t token = 0; token < 8192; ++token) {
    const std::int32_t physical = placement->physical(0, token);
    EXPECT_EQ(physical, placement->physical(0, token));
    EXPECT_EQ(placement->slot(physical).logical_expert, 0);
    ++chosen[physical];
  }
  ASSERT_EQ(chosen.size(), 3U);
  for (const auto& [physical, count] : chosen) EXPECT_LT(count, 8192 / 3 * 1.15) << physical;
}

TEST(Placement, BadTablesSayWhatIsWrong) {
  const auto table = [](std::int64_t experts, int ranks, std::vector<std::int32_t> owner,
                        std::vector<std::int32_t> logical) {
    return [=] { (void)Placement::table(experts, ranks, owner, logical); };
  };
  expect_error<ConfigError>(table(2, 2, {0, 2}, {0, 1}), "slot 1", "owner 2", "[0, 2)");
  expect_error<ConfigError>(table(2, 2, {0, -1}, {0, 1}), "slot 1", "owner -1");
  expect_error<ConfigError>(table(2, 2, {0, 1}, {0, 5}), "slot 1", "expert 5", "[0, 2)");
  expect_error<ConfigError>(table(2, 2, {0, 1}, {-1, 0}), "slot 0", "expert -1");
  expect_error<ConfigError>(table(3, 2, {0, 1}, {0, 2}), "expert 1 of 3", "no owner");
  expect_error<ConfigError>(table(2, 2, {0, 1, 0}, {0, 1}), "3 owners and 2 experts");
  expect_error<ConfigError>(table(2, 2, {0, 1, 1}, {0, 1, 1}), "slots 1 and 2", "expert 1 on rank 1");
  expect_error<ConfigError>(table(0, 2, {}, {}), "experts is 0");
  expect_error<ConfigError>([] { (void)Placement::linear(4, 0); }, "ranks is 0");
  expect_error<ConfigError>([] { (void)Placement::round_robin(0, 1); }, "experts is 0");
}

TEST(Placement, HashTellsPlacementsApart) {
  EXPECT_EQ(Placement::linear(8, 2)->hash(), Placement::linear(8, 2)->hash());
  const std::vector<std::uint64_t> hashes = {Placement::linear(8, 2)->hash(), Placement::round_robin(8, 2)->hash(),
                                             Placement::linear(8, 3)->hash(), Placement::linear(9, 2)->hash(),
                                             Placement::linear(8, 2, 1)->hash()};
  for (std::size_t i = 0; i < hashes.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(hashes[i], hashes[j]) << i << " " << j;
}

}  // namespace
}  // namespace epmoe
