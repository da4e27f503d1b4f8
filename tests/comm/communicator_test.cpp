#include "epmoe/comm/communicator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "epmoe/comm/environment.hpp"
#include "support/world.hpp"

namespace epmoe::comm {
namespace {

using Bytes = std::vector<std::byte>;

/// `count` bytes that differ by rank and position.
Bytes pattern(int rank, std::int64_t count) {
  Bytes bytes(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>((i * 7 + i / 251 + static_cast<std::size_t>(rank) * 31) & 0xff);
  return bytes;
}

TEST(Environment, DescribesItself) {
  EXPECT_THAT(Environment::library_version(),
              ::testing::MatchesRegex("(Open MPI|MPICH) [0-9]+\\.[0-9]+[^,]*, MPI [0-9]\\.[0-9]"));
  EXPECT_FALSE(Environment::processor_name().empty());
  const double before = Environment::clock().now();
  EXPECT_GE(Environment::clock().now(), before);
}

TEST(Environment, LeavesMpiToTheProgramThatInitialisedIt) {
  test::TestContext context;
  {
    const Environment second;
  }
  Communicator::world().barrier(context, "after the second environment");
}

TEST(Communicator, CountsItsHandles) {
  EXPECT_EQ(live_handles().total(), 0);
  {
    auto world = Communicator::world();
    EXPECT_EQ(live_handles().communicators, 1);
    EXPECT_EQ(live_handles().datatypes, 1);
    Communicator moved = std::move(world);
    EXPECT_EQ(moved.size(), test::world_size());
    const auto copy = moved.duplicate();
    EXPECT_EQ(copy.rank(), test::world_rank());
    EXPECT_EQ(live_handles().communicators, 2);
    moved = Communicator::self();
    EXPECT_EQ(moved.size(), 1);
    EXPECT_EQ(live_handles().communicators, 2);
  }
  EXPECT_EQ(live_handles().total(), 0);
}

TEST(Communicator, SplitsByColourAndKey) {
  test::TestContext context;
  const auto world = Communicator::world();
  const auto reversed = world.split(0, -world.rank());
  EXPECT_EQ(reversed.size(), world.size());
  EXPECT_EQ(reversed.rank(), world.size() - 1 - world.rank());
  const auto half = world.split(world.rank() % 2, world.rank());
  EXPECT_EQ(half.size(), (world.size() + 1 - world.rank() % 2) / 2);
  const auto apart = world.split(world.rank() == 0 ? -1 : 3, 0);
  EXPECT_EQ(apart.size(), world.rank() == 0 ? 1 : world.size() - 1);
  EXPECT_EQ(world.split_node().size(), world.size());
  half.barrier(context, "halves");
}

TEST(Communicator, BroadcastsFromEachRootInPieces) {
  test::TestContext context;
  auto world = Communicator::world();
  for (const std::int64_t limit : {1LL << 28, 1000LL, 1LL}) {
    world.limit_message_bytes(limit);
    for (int root = 0; root < world.size(); ++root)
      for (const std::int64_t count : {0, 1, 17, limit == 1 ? 2 : 4001}) {
        const auto mine = world.rank() == root ? pattern(root, count) : pattern(99, 3);
        EXPECT_EQ(world.broadcast(mine, root, context, "broadcast"), pattern(root, count)) << limit << ' ' << count;
      }
  }
}

TEST(Communicator, GathersUnevenSizesInPieces) {
  test::TestContext context;
  auto world = Communicator::world();
  for (const std::int64_t limit : {1LL << 28, 100LL, 1LL}) {
    world.limit_message_bytes(limit);
    for (int longest = 0; longest < world.size(); ++longest) {
      const int most = limit == 1 ? 9 : 331;
      const auto count = [&](int r) { return r == longest ? most : r % 2 == 0 ? 0 : most / 3 + r; };
      const auto mine = pattern(world.rank(), count(world.rank()));
      std::vector<Bytes> expected;
      for (int r = 0; r < world.size(); ++r) expected.push_back(pattern(r, count(r)));
      EXPECT_EQ(world.all_gather(mine, context, "all_gather"), expected) << limit << ' ' << longest;
      const auto gathered = world.gather(mine, longest, context, "gather");
      EXPECT_EQ(gathered, world.rank() == longest ? expected : std::vector<Bytes>{}) << limit << ' ' << longest;
    }
    for (const auto& bytes : world.all_gather({}, context, "nothing")) EXPECT_TRUE(bytes.empty());
  }
}

TEST(Communicator, RefusesMessageSizesThatDoNotFit) {
  auto world = Communicator::world();
  EXPECT_THROW(world.limit_message_bytes(0), ConfigError);
  EXPECT_THROW(world.limit_message_bytes(1LL << 31), ConfigError);
}

}  // namespace
}  // namespace epmoe::comm
