#include "epmoe/comm/expert_group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "epmoe/comm/request_set.hpp"
#include "epmoe/comm/step_plan.hpp"
#include "support/world.hpp"

namespace epmoe::comm {
namespace {

using test::TestContext;
using test::world_group;

std::string config_error(const GroupConfig& config, const ExecutionContext& context) {
  try {
    (void)world_group(context, config);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

TEST(ExpertGroup, RefusesSettingsThatDiffer) {
  TestContext context;
  if (test::world_size() < 2) GTEST_SKIP();
  EXPECT_THAT(config_error({.send_window = test::world_rank() == 1 ? 4 : 8}, context),
              ::testing::HasSubstr("making the expert group: send_window differs between ranks: 8 on rank"));
}

TEST(ExpertGroup, ABadSettingOnOneRankEndsItOnAll) {
  TestContext context;
  for (int bad = 0; bad < test::world_size(); ++bad)
    EXPECT_EQ(config_error({.max_in_flight = test::world_rank() == bad ? 0 : 4}, context),
              "rank " + std::to_string(bad) + ": max_in_flight: found 0, wanted 1 to 1024");
  EXPECT_THAT(config_error({.tensor_parallel_size = 5}, context),
              ::testing::HasSubstr("tensor_parallel_size: found 5, wanted a divisor of the group's"));
}

TEST(ExpertGroup, EveryFieldIsChecked) {
  for (const GroupConfig& config : {GroupConfig{.receive_budget_bytes = 0}, GroupConfig{.max_in_flight = -1},
                                    GroupConfig{.send_window = 0}, GroupConfig{.tensor_parallel_size = 0}})
    EXPECT_THROW(config.validate(), ConfigError);
  GroupConfig{}.validate();
}

TEST(ExpertGroup, NumbersCallsUpToMaxInFlight) {
  TestContext context;
  const auto group = world_group(context, {.max_in_flight = 2});
  EXPECT_EQ(group->begin_call(), 0U);
  EXPECT_EQ(group->begin_call(), 1U);
  try {
    (void)group->begin_call();
    ADD_FAILURE() << "one too many";
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(), "calls in flight: found 2 unfinished, wanted fewer than max_in_flight = 2");
  }
  group->end_call();
  EXPECT_EQ(group->begin_call(), 2U);
  EXPECT_EQ(group->in_flight(), 2);
  group->end_call();
  group->end_call();
}

TEST(ExpertGroup, KnowsItsTensorParallelCoordinates) {
  TestContext context;
  const int size = test::world_size() % 2 == 0 ? 2 : 1;
  const auto group = world_group(context, {.tensor_parallel_size = size});
  EXPECT_EQ(group->tensor_parallel_rank(), group->rank() % size);
  for (int r = 0; r < group->size(); ++r) EXPECT_TRUE(group->alive(r));
}

TEST(ExpertGroup, GroupsSmallerThanTheWorldWorkSideBySide) {
  TestContext context;
  const auto world = Communicator::world();
  const auto part = world.split(world.rank() % 2, 0);
  const auto group = ExpertGroup::create(part, {}, context);
  const auto plan = agree_step(*group, {.step = 1, .tokens = 10 + world.rank()}, context);
  EXPECT_EQ(plan.tokens.size(), static_cast<std::size_t>(part.size()));
  for (int r = 0; r < part.size(); ++r)
    EXPECT_EQ(plan.tokens[static_cast<std::size_t>(r)], 10 + 2 * r + world.rank() % 2);
}

TEST(ExpertGroup, ReplacesItsCommunicator) {
  TestContext context;
  const auto world = Communicator::world();
  const auto group = world_group(context);
  (void)group->begin_call();
  if (world.rank() > 0) group->end_call();
  std::string refused;
  try {
    group->replace_communicator(world, context);
  } catch (const InputError& e) {
    refused = e.what();
  }
  EXPECT_EQ(refused, "rank 0: replace_communicator: found 1 calls and 0 operations in flight, wanted none");
  EXPECT_EQ(group->epoch(), 0U);
  if (world.rank() == 0) group->end_call();

  // Ranks in reverse order, without the last one unless it is alone.
  const bool leaves = world.size() > 1 && world.rank() == world.size() - 1;
  const auto members = world.split(leaves ? 1 : 0, -world.rank());
  group->replace_communicator(members, context);
  EXPECT_EQ(group->epoch(), 1U);
  EXPECT_EQ(group->rank(), members.rank());
  EXPECT_EQ(group->engine().rank(), members.rank());
  EXPECT_EQ(group->size(), members.size());
  EXPECT_EQ(group->begin_call(), 1U) << "numbers go on";
  group->end_call();
  EXPECT_EQ(agree_step(*group, {.step = 1, .tokens = 1}, context).total_tokens(), members.size());
}

TEST(ExpertGroup, NewcomersCountOnWithTheOthers) {
  TestContext context;
  const auto world = Communicator::world();
  if (world.size() < 2) GTEST_SKIP();
  const bool newcomer = world.rank() == world.size() - 1;
  const auto before = world.split(newcomer ? -1 : 0, 0);
  std::shared_ptr<ExpertGroup> group;
  if (newcomer) {
    group = ExpertGroup::create(world, {}, context);
  } else {
    group = ExpertGroup::create(before, {}, context);
    (void)group->begin_call();
    group->end_call();
    group->replace_communicator(world, context);
  }
  EXPECT_EQ(group->epoch(), 1U);
  EXPECT_EQ(group->begin_call(), 1U);
  group->end_call();
  EXPECT_EQ(agree_step(*group, {.step = 3, .tokens = 1}, context).total_tokens(), world.size());
}

/// Exchanges one block with each neighbour; leaks what is pending if the group breaks.
class Exchange final : public Operation {
 public:
  explicit Exchange(ExpertGroup& group, int* ended)
      : group_(&group),
        ended_(ended),
        requests_(group.communicator()),
        in_(group.slots().take(kBlockBytes)),
        out_(group.slots().take(kBlockBytes)) {
    requests_.receive(in_.data(), 1, (group.rank() + group.size() - 1) % group.size(), 5);
  }
  ~Exchange() override {
    group_->engine().detach(*this);
    if (requests_.all_done())
      ++*ended_;
    else
      requests_.leak(), in_.leak(), out_.leak();
  }
  bool advance() override {
    if (!sent_) requests_.send(out_.data(), 1, (group_->rank() + 1) % group_->size(), 5);
    sent_ = true;
    return requests_.poll();
  }
  [[nodiscard]] std::vector<int> waiting_for() const override { return requests_.pending_peers(); }

 private:
  ExpertGroup* group_;
  int* ended_;
  RequestSet requests_;
  SlotPool::Slot in_, out_;
  bool sent_ = false;
};

TEST(ExpertGroup, DrivesParkedOperationsBeforeItEnds) {
  TestContext context;
  int ended = 0;
  {
    const auto group = world_group(context);
    group->engine().park(std::make_unique<Exchange>(*group, &ended));
  }
  EXPECT_EQ(ended, 1);
}

TEST(ExpertGroup, AWaitForOneExchangeDrivesTheOthers) {
  TestContext context;
  int ended = 0;
  {
    const auto group = world_group(context);
    Exchange first(*group, &ended);
    Exchange second(*group, &ended);
    group->engine().attach(first);
    group->engine().attach(second);
    // Even ranks wait for the second only: the first must move on all the same, since odd ranks need it.
    group->engine().wait(group->rank() % 2 == 0 ? second : first, {"dispatch", 0, 1}, context);
    group->engine().wait(group->rank() % 2 == 0 ? first : second, {"dispatch", 0, 1}, context);
    EXPECT_EQ(group->engine().attached(), 2);
  }
  EXPECT_EQ(ended, 2);
}

}  // namespace
}  // namespace epmoe::comm
