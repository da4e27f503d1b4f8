#include "epmoe/core/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace epmoe {
namespace {

TEST(Random, ValuesAreTheSameOnEveryMachine) {
  // From an independent computation with arbitrary-size integers and the C library's log and cos.
  const struct {
    std::uint64_t seed, row, column, bits;
    double uniform, normal;
  } golden[] = {
      {0, 0, 0, 0x238275bc38fcbe91ULL, 0.13870936632156372, 0.37498133062236305},
      {1, 2, 3, 0xd0734750fde362b3ULL, 0.8142589926719666, 1.6519965649802688},
      {42, 1ULL << 40U, 2879, 0xf760e9522020ed0eULL, 0.9663224816322327, -1.6739037748800425},
      {~0ULL, 7, ~0ULL, 0x37d3ac0444fa3348ULL, 0.21807360649108887, 0.4369739746318483},
  };
  for (const auto& g : golden) {
    EXPECT_EQ(random_bits(g.seed, g.row, g.column), g.bits);
    EXPECT_EQ(random_uniform(g.seed, g.row, g.column), static_cast<float>(g.uniform));
    EXPECT_EQ(random_normal(g.seed, g.row, g.column), static_cast<float>(g.normal));
  }
}

TEST(Random, AnySplitOverRanksGivesTheSameTensor) {
  constexpr std::uint64_t kRows = 37, kColumns = 19;
  std::vector<float> whole;
  for (std::uint64_t r = 0; r < kRows; ++r)
    for (std::uint64_t c = 0; c < kColumns; ++c) whole.push_back(random_normal(5, r, c));
  for (const std::uint64_t ranks : {2U, 3U, 8U}) {
    std::vector<float> split(whole.size());
    for (std::uint64_t rank = ranks; rank-- > 0;)  // in another order, columns first
      for (std::uint64_t c = 0; c < kColumns; ++c)
        for (std::uint64_t r = rank; r < kRows; r += ranks) split[r * kColumns + c] = random_normal(5, r, c);
    EXPECT_EQ(split, whole);
  }
}

TEST(Random, MomentsAreThoseOfTheDistributions) {
  constexpr std::uint64_t kRows = 400, kColumns = 500;
  double u1 = 0, u2 = 0, n1 = 0, n2 = 0, n4 = 0, row_neighbours = 0, column_neighbours = 0;
  for (std::uint64_t r = 0; r < kRows; ++r)
    for (std::uint64_t c = 0; c < kColumns; ++c) {
      const double u = random_uniform(11, r, c), n = random_normal(11, r, c);
      ASSERT_TRUE(u >= 0.0 && u < 1.0);
      ASSERT_TRUE(std::isfinite(n));
      u1 += u, u2 += u * u, n1 += n, n2 += n * n, n4 += n * n * n * n;
      row_neighbours += n * random_normal(11, r + 1, c);
      column_neighbours += n * random_normal(11, r, c + 1);
    }
  const double count = kRows * kColumns;  // bounds are five standard errors
  EXPECT_NEAR(u1 / count, 0.5, 0.0033);
  EXPECT_NEAR(u2 / count, 1.0 / 3.0, 0.0034);
  EXPECT_NEAR(n1 / count, 0.0, 0.0112);
  EXPECT_NEAR(n2 / count, 1.0, 0.0159);
  EXPECT_NEAR(n4 / count, 3.0, 0.11);
  EXPECT_NEAR(row_neighbours / count, 0.0, 0.0112);
  EXPECT_NEAR(column_neighbours / count, 0.0, 0.0112);
}

TEST(Random, CountersDoNotCollide) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (std::uint64_t r = 0; r < 50; ++r)
      for (std::uint64_t c = 0; c < 50; ++c) seen.insert(random_bits(seed, r, c));
  EXPECT_EQ(seen.size(), 4U * 50U * 50U);
}

}  // namespace
}  // namespace epmoe
