#include "epmoe/comm/step_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "epmoe/comm/request_set.hpp"
#include "support/pmpi_counter.hpp"
#include "support/world.hpp"

namespace epmoe::comm {
namespace {

using test::TestContext;
using test::world_group;

TEST(StepPlan, GathersTokensOfAllRanks) {
  TestContext context;
  const auto group = world_group(context);
  test::reset_pmpi_counts();
  const auto plan =
      agree_step(*group, {.step = 9, .tokens = 3 * group->rank(), .placement_epoch = 4, .micro_batch = true}, context);
  const auto counts = test::pmpi_counts();
  EXPECT_EQ(plan.step, 9U);
  EXPECT_EQ(plan.placement_epoch, 4U);
  EXPECT_TRUE(plan.micro_batch);
  EXPECT_FALSE(plan.stop);
  EXPECT_EQ(plan.tokens.size(), static_cast<std::size_t>(group->size()));
  for (int r = 0; r < group->size(); ++r) EXPECT_EQ(plan.tokens[static_cast<std::size_t>(r)], 3 * r);
  // One block to and from every other rank and nothing else.
  EXPECT_EQ(counts.isend, group->size() - 1);
  EXPECT_EQ(counts.isend_bytes, (group->size() - 1) * kBlockBytes);
  EXPECT_EQ(counts.irecv, group->size() - 1);
  EXPECT_EQ(counts.iallgatherv + counts.iallgather + counts.other, 0);
}

TEST(StepPlan, NobodyHasTokens) {
  TestContext context;
  const auto group = world_group(context);
  const auto plan = agree_step(*group, {.step = 1}, context);
  EXPECT_EQ(plan.total_tokens(), 0);
  EXPECT_FALSE(plan.micro_batch);
}

TEST(StepPlan, OneVoteDecidesWhetherToSplitAndToStop) {
  TestContext context;
  const auto group = world_group(context);
  for (int odd = 0; odd < group->size(); ++odd) {
    const bool me = group->rank() == odd;
    const auto plan = agree_step(*group, {.step = 2, .tokens = 1, .micro_batch = !me, .stop = me}, context);
    EXPECT_FALSE(plan.micro_batch) << odd;
    EXPECT_TRUE(plan.stop) << odd;
  }
}

/// What a step throws; the group must stay usable.
std::string error_of(ExpertGroup& group, const StepVote& vote, const ExecutionContext& context, ErrorCode& code) {
  code = ErrorCode::none;
  try {
    (void)agree_step(group, vote, context);
  } catch (const Error& e) {
    code = e.code();
    return e.what();
  }
  return "";
}

TEST(StepPlan, DifferentStepsFailAlikeOnAllRanks) {
  TestContext context;
  const auto group = world_group(context);
  for (int odd = 1; odd < group->size(); ++odd) {
    ErrorCode code{};
    EXPECT_EQ(error_of(*group, {.step = group->rank() == odd ? 6U : 5U}, context, code),
              "rank " + std::to_string(odd) + ": step in the step plan: found 6, wanted 5 as on rank 0");
    EXPECT_EQ(code, ErrorCode::comm);
    EXPECT_EQ(error_of(*group, {.step = 5, .placement_epoch = group->rank() >= odd ? 1U : 0U}, context, code),
              "rank " + std::to_string(odd) + ": placement epoch in the step plan: found 1, wanted 0 as on rank 0");
    EXPECT_EQ(code, ErrorCode::comm);
  }
  ErrorCode code{};
  const std::string text = error_of(*group, {.step = 7, .tokens = group->rank() == 0 ? -3 : 1}, context, code);
  EXPECT_EQ(text, "rank 0: tokens in the step plan: found -3, wanted at least 0");
  EXPECT_EQ(code, ErrorCode::input);
  EXPECT_FALSE(group->broken());
  EXPECT_EQ(agree_step(*group, {.step = 8, .tokens = 2}, context).total_tokens(), 2 * group->size());
}

TEST(StepPlan, SeveralUnderWayAndReceivedInAnyOrder) {
  TestContext context;
  const auto group = world_group(context);
  auto first = begin_step(*group, {.step = 1, .tokens = 10}, context);
  auto second = begin_step(*group, {.step = 2, .tokens = 20}, context);
  EXPECT_EQ(second->receive().tokens[0], 20);
  while (!first->poll()) std::this_thread::yield();
  EXPECT_EQ(first->receive().tokens[0], 10);
  EXPECT_EQ(first->receive().step, 1U) << "receiving again gives the same";
}

TEST(StepPlan, ADroppedOneIsWaitedFor) {
  TestContext context;
  const auto group = world_group(context);
  {
    const auto dropped = begin_step(*group, {.step = 1}, context);
  }
  EXPECT_FALSE(group->broken());
  EXPECT_EQ(group->slots().in_use(), 0);
  EXPECT_EQ(group->engine().attached(), 0);
  EXPECT_EQ(agree_step(*group, {.step = 2}, context).step, 2U);
}

TEST(StepPlan, ManyStepsUntilSomebodyStops) {
  TestContext context;
  const auto group = world_group(context);
  constexpr std::uint64_t kMost = 10000;  // fewer on a loaded machine
  const double end = context.context().clock->now() + 3.0;
  std::uint64_t step = 0;
  int wrong = 0;
  for (bool stop = false; !stop; ++step) {
    const bool vote = step + 1 == kMost || (group->rank() == 0 && context.context().clock->now() > end);
    const auto tokens = static_cast<std::int64_t>(step) + group->rank();
    const auto plan = agree_step(*group, {.step = step, .tokens = tokens, .stop = vote}, context);
    stop = plan.stop;
    for (int r = 0; r < group->size(); ++r)
      wrong += plan.tokens[static_cast<std::size_t>(r)] != tokens - group->rank() + r ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(step, 10U);
  EXPECT_LE(group->slots().peak_bytes(), 2 * 4 * kBlockBytes) << "buffers are reused";
  // Steps that not all took would differ here.
  EXPECT_EQ(agree_step(*group, {.step = step}, context).step, step);
}

}  // namespace
}  // namespace epmoe::comm
