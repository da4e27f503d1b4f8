/// Ranks that do not make the same call, ranks that make none, and the ways to wait.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "epmoe/observe/stage_times.hpp"
#include "prepare_finalize/round_trip.hpp"

namespace epmoe::test {
namespace {

using ::testing::HasSubstr;

std::pair<ErrorCode, std::string> caught_by(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ErrorCode::none, ""};
}

Case usual(const std::string& strategy) {
  return {.strategy = strategy, .placement = Placement::linear(8, world_size()), .tokens = per_rank({6, 3})};
}

std::vector<std::string> travelling() {
  return {"alltoall", "allgather"};
}

TEST(Protocol, AMessageOfAnotherLayerIsRefused) {
  if (world_size() == 1) return;
  const TestContext context;
  for (const std::int64_t budget : {256LL << 20, 1LL})
    for (const auto& strategy : travelling()) {
      comm::GroupConfig config;
      config.receive_budget_bytes = budget;
      const auto group = world_group(context, config);
      const auto c = usual(strategy);
      const auto part = make_prepare_finalize(strategy, group, c.config, context);
      const Input input(c, random_routing(c));
      auto prepare = input.prepare(c);
      const int odd = world_size() - 1;
      if (world_rank() == odd) prepare.layer = 4;
      const auto [code, what] = caught_by([&] { (void)part->prepare(prepare, context); });
      EXPECT_EQ(code, ErrorCode::comm);
      if (world_rank() == odd) {
        EXPECT_EQ(what, fmt::format("rank {}: message of rank {} in dispatch: layer: found 3, wanted 4", odd, 0));
      } else {
        EXPECT_EQ(what,
                  fmt::format("rank {}: message of rank {} in dispatch: layer: found 4, wanted 3", world_rank(), odd));
      }
    }
}

/// Ranks with different placements: rows reach ranks that do not own their experts.
TEST(Protocol, RowsForOtherRanksAreRefused) {
  if (world_size() == 1) return;
  const TestContext context;
  const auto group = world_group(context);
  auto c = usual("alltoall");
  if (world_rank() == 0) c.placement = Placement::round_robin(8, world_size());
  const auto part = make_prepare_finalize("alltoall", group, c.config, context);
  OwnedRouting routing(c.tokens[static_cast<std::size_t>(world_rank())], 2);
  for (std::int64_t t = 0; t < routing.view().tokens(); ++t) {
    routing.ids()(t, 0) = 1;  // rank 1 in rank 0's eyes, rank 0 in the others'
    routing.weights()(t, 0) = 1.0F;
  }
  const Input input(c, std::move(routing));
  const auto [code, what] = caught_by([&] { (void)round_trip(*part, input, c, context); });
  EXPECT_EQ(code, ErrorCode::comm) << what;
  if (world_rank() == 0) {
    EXPECT_THAT(what, HasSubstr("row 0 from rank 1 names physical expert 1 at k 0, wanted one of this rank"));
  }
  if (world_rank() == 1) {
    EXPECT_THAT(what, HasSubstr("row 0 from rank 0 names physical expert 1 at k 0, wanted one of this rank"));
  }
}

TEST(Protocol, ASilentRankIsNamed) {
  if (world_size() == 1) return;
  TestContext context;
  context.context().deadlines = {0.1, 0.3};
  const auto world = comm::Communicator::world();
  const TestContext patient;
  for (const auto& strategy : travelling())
    for (const bool in_combine : {false, true}) {
      const auto group = world_group(context);
      const auto c = usual(strategy);
      const auto part = make_prepare_finalize(strategy, group, c.config, patient);
      const Input input(c, random_routing(c));
      if (world_rank() == 0) {  // takes part in dispatch at most
        std::unique_ptr<PendingDispatch> pending;
        if (in_combine) pending = part->prepare_async(input.prepare(c), context);
        Prepared prepared;
        if (in_combine) prepared = pending->receive();
        world.barrier(patient, "all others gave up");
        group->engine().mark_broken();
      } else {
        const auto [code, what] = caught_by([&] { (void)round_trip(*part, input, c, context); });
        EXPECT_EQ(code, ErrorCode::timeout) << what;
        if (strategy == "alltoall" || in_combine) {
          EXPECT_THAT(what,
                      HasSubstr(fmt::format("for rank 0 in {}, layer 3, step 0", in_combine ? "combine" : "dispatch")));
        }
        EXPECT_TRUE(group->broken());
        EXPECT_EQ(caught_by([&] { (void)part->prepare_async(input.prepare(c), context); }).first, ErrorCode::comm);
        world.barrier(patient, "all others gave up");
      }
    }
}

TEST(Waiting, PollHookAndReceive) {
  const TestContext context;
  const auto group = world_group(context);
  for (const auto& strategy : fitting_strategies()) {
    const auto c = usual(strategy);
    const auto part = make_prepare_finalize(strategy, group, c.config, context);
    EXPECT_TRUE(part->supports_async());
    EXPECT_TRUE(part->output_is_reduced());
    EXPECT_EQ(part->num_dispatchers(), world_size());
    const Input input(c, random_routing(c));
    auto dispatch = part->prepare_async(input.prepare(c), context);
    while (!dispatch->poll()) continue;
    dispatch->hook();
    dispatch->hook();
    auto prepared = dispatch->receive();
    EXPECT_TRUE(dispatch->poll());
    EXPECT_TRUE(prepared.expert_tokens.has_value());
    std::int64_t entries = 0;
    for (const auto rows : prepared.expert_tokens->rows_per_local_expert) entries += rows;
    EXPECT_EQ(entries, prepared.batch.routing.entries());
    const auto experts = hand_experts(prepared.batch, c);
    std::vector<float> y(static_cast<std::size_t>(input.x.rows * c.config.hidden), -1.0F);
    auto combine = part->finalize_async(std::move(prepared.receipt), input.routing.view(), experts.output,
                                        matrix_view(y.data(), input.x.rows, c.config.hidden), context);
    while (!combine->poll()) continue;
    combine->hook();
    combine->receive();
    combine->receive();
    EXPECT_TRUE(combine->poll());
    EXPECT_EQ(differing(y, oracle(input, c)), 0);
  }
}

/// Threads, and a progress hook that drives this very call while it is encoded.
TEST(Waiting, ThreadsAndHookChangeNothing) {
  TestContext context(2);
  comm::GroupConfig config;
  config.receive_budget_bytes = 40000;
  const auto group = world_group(context, config);
  group->engine().poll_interval_seconds = 0.0;
  StageTimes times(world_size(), 8);
  context.context().progress = &group->engine();
  context.context().observer = &times;
  for (const auto& strategy : fitting_strategies())
    for (const bool reproducible : {false, true}) {
      auto c = usual(strategy);
      c.tokens = per_rank({300, 170});
      c.config.reproducible = reproducible;
      const auto part = make_prepare_finalize(strategy, group, c.config, context);
      const Input input(c, random_routing(c));
      for (int repeat = 0; repeat < 3; ++repeat)
        EXPECT_EQ(differing(round_trip(*part, input, c, context), oracle(input, c)), 0) << strategy;
    }
  EXPECT_GT(times.seconds(Phase::quantize), 0.0);
  EXPECT_GT(times.seconds(Phase::combine), 0.0);
  EXPECT_GT(times.seconds(Phase::wait), 0.0);
}

}  // namespace
}  // namespace epmoe::test
