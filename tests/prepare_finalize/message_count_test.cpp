/// Counts the messages that really leave, between the library and MPI.
#include <gtest/gtest.h>

#include "epmoe/observe/stage_times.hpp"
#include "prepare_finalize/round_trip.hpp"
#include "support/pmpi_counter.hpp"

namespace epmoe::test {
namespace {

struct Counts {
  PmpiCounts dispatch, combine;
};

Counts count_messages(const std::string& strategy, const std::vector<std::int64_t>& tokens,
                      const TestContext& context) {
  const auto group = world_group(context);
  const Case c{.strategy = strategy, .placement = Placement::linear(8, world_size()), .tokens = per_rank(tokens)};
  const auto part = make_prepare_finalize(strategy, group, c.config, context);
  const Input input(c, random_routing(c));
  StageTimes times(world_size(), c.config.experts);
  ExecutionContext observed = context;
  observed.observer = &times;
  reset_pmpi_counts();
  auto prepared = part->prepare(input.prepare(c), observed);
  Counts counts{pmpi_counts(), {}};
  reset_pmpi_counts();
  EXPECT_EQ(differing(finish_call(*part, std::move(prepared), input, c, observed), oracle(input, c)), 0);
  counts.combine = pmpi_counts();
  EXPECT_EQ(counts.dispatch.other + counts.combine.other, 0);
  EXPECT_EQ(
      counts.dispatch.isend_bytes + counts.dispatch.iallgatherv_bytes * (world_size() - 1) + counts.combine.isend_bytes,
      times.bytes_sent());

  // The observer saw the same messages, both ends alike.
  for (int peer = 0; peer < world_size(); ++peer)
    for (const auto* phase : {&times.dispatch(), &times.combine()}) {
      const auto& traffic = (*phase)[static_cast<std::size_t>(peer)];
      EXPECT_EQ(traffic.messages_sent, peer == world_rank() ? 0 : 1);
      EXPECT_EQ(traffic.messages_received, peer == world_rank() ? 0 : 1);
    }
  std::int64_t rows_sent = 0, rows_received = 0;
  for (const auto& traffic : times.dispatch()) {
    rows_sent += traffic.rows_sent;
    rows_received += traffic.rows_received;
  }
  EXPECT_EQ(over_ranks(rows_sent - rows_received, context), 0);
  return counts;
}

TEST(MessageCount, OneMessagePerPeerAndPhase) {
  const TestContext context;
  const int peers = world_size() - 1;
  for (const auto& tokens : {std::vector<std::int64_t>{40, 3}, {0}, {0, 5}}) {
    const auto all_to_all = count_messages("alltoall", tokens, context);
    EXPECT_EQ(all_to_all.dispatch.isend, peers);
    EXPECT_EQ(all_to_all.dispatch.iallgatherv, 0);
    EXPECT_EQ(all_to_all.combine.isend, peers);
    const auto all_gather = count_messages("allgather", tokens, context);
    EXPECT_EQ(all_gather.dispatch.isend, 0);
    EXPECT_EQ(all_gather.dispatch.iallgatherv, 1);
    EXPECT_EQ(all_gather.combine.isend, peers);
    EXPECT_EQ(all_gather.combine.iallgatherv, 0);
  }
}

}  // namespace
}  // namespace epmoe::test
