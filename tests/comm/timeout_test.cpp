// Ranks that never do their part. Each test breaks its own group or communicator, which is then leaked; the silent
// ranks catch up once the others have given up, so that MPI itself can be finalised.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "epmoe/comm/request_set.hpp"
#include "epmoe/comm/step_plan.hpp"
#include "support/world.hpp"

namespace epmoe::comm {
namespace {

using test::TestContext;
using ::testing::MatchesRegex;

constexpr double kHard = 0.3;

/// An execution context whose waits end soon.
ExecutionContext impatient(TestContext& owner) {
  ExecutionContext context = owner;
  context.deadlines = {kHard / 3, kHard};
  return context;
}

struct Outcome {
  std::string text, phase;
  int rank = -2;
  double seconds = 0.0;
};

template <class Call>
Outcome timed_out(Call&& call) {
  Outcome outcome;
  const auto start = std::chrono::steady_clock::now();
  try {
    call();
  } catch (const TimeoutError& e) {
    outcome = {e.what(), e.phase(), e.rank(), 0.0};
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

TEST(Timeout, AStartUpCollectiveNamesItself) {
  TestContext owner;
  const auto sync = Communicator::world();
  auto comm = Communicator::world();
  const bool silent = comm.rank() == 0;
  if (!silent) {
    const auto context = impatient(owner);
    const auto outcome = timed_out([&] { comm.barrier(context, "loading experts"); });
    EXPECT_THAT(outcome.text, MatchesRegex("rank " + std::to_string(comm.rank()) +
                                           ": gave up after 0.3[0-9]* s of waiting for its peers in loading experts"));
    EXPECT_GE(outcome.seconds, kHard);
    EXPECT_THROW((void)comm.all_gather({}, context, "again"), CommError);
  }
  sync.barrier(owner, "all others gave up");
  if (silent) comm.barrier(owner, "late");
  sync.barrier(owner, "the late rank came");
  if (silent) comm.leak();
}

/// Receives a block from every other rank and sends one to each, except if told to be silent.
class Exchange final : public Operation {
 public:
  explicit Exchange(ExpertGroup& group) : group_(group), requests_(group.communicator()) {
    for (int r = 0; r < group.size(); ++r) {
      if (r == group.rank()) continue;
      buffers_.push_back(group.slots().take(kBlockBytes));
      requests_.receive(buffers_.back().data(), 1, r, make_tag(TagPhase::dispatch, 0));
    }
    group_.engine().attach(*this);
  }
  ~Exchange() override {
    group_.engine().detach(*this);
    if (requests_.all_done()) return;
    requests_.leak();
    for (auto& buffer : buffers_) buffer.leak();
  }
  void send() {
    for (int r = 0; r < group_.size(); ++r) {
      if (r == group_.rank()) continue;
      buffers_.push_back(group_.slots().take(kBlockBytes));
      requests_.send(buffers_.back().data(), 1, r, make_tag(TagPhase::dispatch, 0));
    }
  }
  bool advance() override { return requests_.poll(); }
  [[nodiscard]] std::vector<int> waiting_for() const override { return requests_.pending_peers(); }

 private:
  ExpertGroup& group_;
  RequestSet requests_;
  std::vector<SlotPool::Slot> buffers_;
};

TEST(Timeout, AWaitNamesTheRanksThatNeverSent) {
  TestContext owner;
  const auto sync = Communicator::world();
  {
    const auto group = test::world_group(owner);
    const bool silent = group->rank() % 2 == 0;
    Exchange exchange(*group);
    if (!silent) {
      const auto context = impatient(owner);
      exchange.send();
      const auto outcome = timed_out([&] { group->engine().wait(exchange, {"dispatch", 7, 91}, context); });
      const std::string who = group->size() == 2 ? "rank 0" : "ranks 0, 2";
      EXPECT_THAT(outcome.text, MatchesRegex("rank " + std::to_string(group->rank()) + ": waited 0.3[0-9]* s for " +
                                             who + " in dispatch, layer 7, step 91"));
      EXPECT_EQ(outcome.rank, group->size() == 2 ? 0 : -1);
      EXPECT_EQ(outcome.phase, "dispatch");
      EXPECT_GE(outcome.seconds, kHard);
      EXPECT_LT(outcome.seconds, kHard + 5.0);
      EXPECT_TRUE(group->broken());
      EXPECT_THROW((void)group->begin_call(), CommError);
      EXPECT_THROW((void)begin_step(*group, {}, context), CommError);
      EXPECT_THROW(group->engine().wait(exchange, {"combine"}, context), CommError);
    }
    sync.barrier(owner, "all others gave up");
    if (silent) {
      exchange.send();
      group->engine().wait(exchange, {"late"}, owner);
      group->engine().mark_broken();  // the others leak theirs
    }
    sync.barrier(owner, "the late ranks came");
  }
  EXPECT_EQ(live_handles().communicators, 1) << "leaked handles are counted out";
  EXPECT_EQ(live_handles().requests, 0);
}

TEST(Timeout, AStepCalledOnceTooFew) {
  TestContext owner;
  const auto sync = Communicator::world();
  const auto group = test::world_group(owner);
  const bool silent = group->rank() == group->size() - 1;
  if (!silent) {
    const auto context = impatient(owner);
    const auto outcome = timed_out([&] { (void)agree_step(*group, {.step = 12}, context); });
    EXPECT_THAT(outcome.text, MatchesRegex("rank " + std::to_string(group->rank()) + ": waited 0.3[0-9]* s for rank " +
                                           std::to_string(group->size() - 1) + " in step plan, step 12"));
    EXPECT_EQ(outcome.phase, "step plan");
    EXPECT_TRUE(group->broken());
  }
  sync.barrier(owner, "all others gave up");
  if (silent) {
    EXPECT_EQ(agree_step(*group, {.step = 12}, owner).step, 12U);
    group->engine().mark_broken();
  }
  sync.barrier(owner, "the late rank came");
}

TEST(Timeout, ADroppedStepPlanWaitsNoLongerThanItsDeadline) {
  TestContext owner;
  const auto sync = Communicator::world();
  const auto group = test::world_group(owner);
  const bool silent = group->rank() == 0;
  if (!silent) {
    const auto context = impatient(owner);
    {
      const auto dropped = begin_step(*group, {.step = 5}, context);
    }
    EXPECT_TRUE(group->broken());
    EXPECT_EQ(group->slots().in_use(), 0) << "leaked slots are counted out";
    EXPECT_EQ(live_handles().requests, 0);
  }
  sync.barrier(owner, "all others gave up");
  if (silent) {
    (void)agree_step(*group, {.step = 5}, owner);
    group->engine().mark_broken();
  }
  sync.barrier(owner, "the late rank came");
}

TEST(Timeout, ABrokenGroupIsMendedByANewCommunicator) {
  TestContext owner;
  const auto world = Communicator::world();
  {
    const auto group = test::world_group(owner);
    group->engine().mark_broken();
    group->replace_communicator(world, owner);
    EXPECT_FALSE(group->broken());
    EXPECT_EQ(group->epoch(), 1U);
    EXPECT_EQ(agree_step(*group, {.step = 1, .tokens = 2}, owner).total_tokens(), 2 * group->size());
  }
  EXPECT_EQ(live_handles().communicators, 1);
}

TEST(Timeout, AStopRequestEndsAWait) {
  TestContext owner;
  const auto sync = Communicator::world();
  const auto group = test::world_group(owner);
  const bool silent = group->rank() == 0;
  if (!silent) {
    StopToken stop;
    stop.request_stop();
    ExecutionContext context = owner;
    context.stop = &stop;
    const auto outcome = timed_out([&] { (void)agree_step(*group, {.step = 3}, context); });
    EXPECT_THAT(outcome.text, ::testing::HasSubstr("was asked to stop"));
    EXPECT_LT(outcome.seconds, 5.0);
  }
  sync.barrier(owner, "all others gave up");
  if (silent) {
    (void)agree_step(*group, {.step = 3}, owner);
    group->engine().mark_broken();
  }
  sync.barrier(owner, "the late rank came");
}

}  // namespace
}  // namespace epmoe::comm
