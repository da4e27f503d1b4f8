#include "epmoe/comm/topology.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "support/world.hpp"

namespace epmoe::comm {
namespace {

using Members = std::vector<std::vector<int>>;

TEST(Topology, UnevenNodesAreNumberedByTheirLowestRank) {
  const auto topology = Topology::from_nodes({5, 0, 5, 5, 0, 9});
  EXPECT_EQ(topology.nodes(), 3);
  EXPECT_EQ(topology.node_of, (std::vector<int>{0, 1, 0, 0, 1, 2}));
  EXPECT_EQ(topology.members, (Members{{0, 2, 3}, {1, 4}, {5}}));
}

TEST(Topology, OneNodeAndOneRankEach) {
  EXPECT_EQ(Topology::from_nodes({3, 3, 3}).members, (Members{{0, 1, 2}}));
  EXPECT_EQ(Topology::from_nodes({2, 1, 0}).members, (Members{{0}, {1}, {2}}));
}

TEST(Topology, TestsRunOnOneNode) {
  test::TestContext context;
  const auto world = Communicator::world();
  const auto topology = discover_topology(world, context);
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(topology.members, Members{all});
  EXPECT_EQ(topology.node_of, std::vector<int>(all.size(), 0));
}

}  // namespace
}  // namespace epmoe::comm
