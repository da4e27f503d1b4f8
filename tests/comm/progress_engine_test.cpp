#include "epmoe/comm/progress_engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "support/world.hpp"

namespace epmoe::comm {
namespace {

/// Done after `needed` polls; may do something in each.
class Counting final : public Operation {
 public:
  explicit Counting(int needed) : needed_(needed) {}
  ~Counting() override {
    if (at_end) at_end();
  }
  bool advance() override {
    ++polls;
    if (in_advance) in_advance();
    return polls >= needed_;
  }
  [[nodiscard]] std::vector<int> waiting_for() const override { return {1, 3}; }
  int polls = 0;
  std::function<void()> in_advance, at_end;

 private:
  int needed_;
};

class ManualClock final : public Clock {
 public:
  [[nodiscard]] double now() const override { return time; }
  double time = 1000.0;
};

TEST(ProgressEngine, AWaitForOneDrivesAllAndDoneOnesRest) {
  test::TestContext context;
  ProgressEngine engine(0, steady_clock());
  Counting early(2);
  Counting late(1000);
  Counting other(5000);
  for (auto* operation : {&early, &late, &other}) engine.attach(*operation);
  engine.wait(late, {"dispatch"}, context);
  EXPECT_EQ(late.polls, 1000);
  EXPECT_EQ(other.polls, 1000);
  EXPECT_EQ(early.polls, 2) << "a done operation is not polled";
  EXPECT_EQ(engine.attached(), 3) << "but stays until detached";
  engine.wait(early, {"dispatch"}, context);
  EXPECT_EQ(other.polls, 1000) << "waiting for a done one does nothing";
  engine.detach(late);
  engine.poll();
  EXPECT_EQ(other.polls, 1001);
  EXPECT_EQ(late.polls, 1000);
  EXPECT_EQ(engine.attached(), 2);
}

TEST(ProgressEngine, AnOperationIsNeverReentered) {
  ProgressEngine engine(0, steady_clock());
  engine.poll_interval_seconds = 0.0;
  Counting outer(3);
  outer.in_advance = [&] {
    engine.poll();
    engine.progress();
  };
  engine.attach(outer);
  engine.poll();
  EXPECT_EQ(outer.polls, 1);
  test::TestContext context;
  outer.in_advance = [&] { EXPECT_THROW(engine.wait(outer, {"dispatch"}, context), InternalError); };
  engine.poll();
  EXPECT_FALSE(engine.broken());
}

TEST(ProgressEngine, OperationsComeAndGoDuringAPoll) {
  ProgressEngine engine(0, steady_clock());
  Counting first(100);
  Counting second(100);
  Counting third(100);
  first.in_advance = [&] {
    engine.detach(second);
    engine.attach(third);
  };
  engine.attach(first);
  engine.attach(second);
  engine.poll();
  EXPECT_EQ(first.polls + second.polls + third.polls, 2);
  EXPECT_EQ(second.polls, 0);
  first.in_advance = [&] { engine.detach(first); };
  engine.poll();
  engine.poll();
  EXPECT_EQ(first.polls, 2);
  EXPECT_EQ(third.polls, 3);
  EXPECT_EQ(engine.attached(), 1);
}

TEST(ProgressEngine, ParkedOperationsEndWhenTheyAreDone) {
  ProgressEngine engine(0, steady_clock());
  bool ended = false;
  auto operation = std::make_unique<Counting>(2);
  auto* const raw = operation.get();
  operation->at_end = [&, raw] {
    ended = true;
    engine.detach(*raw);  // as owners' destructors do
  };
  engine.attach(*operation);
  engine.park(std::move(operation));
  EXPECT_EQ(engine.parked(), 1);
  EXPECT_EQ(engine.attached(), 1);
  engine.poll();
  EXPECT_FALSE(ended);
  engine.poll();
  EXPECT_TRUE(ended);
  EXPECT_EQ(engine.parked(), 0);
  EXPECT_EQ(engine.attached(), 0);
}

TEST(ProgressEngine, TheHookLimitsItsRate) {
  ManualClock clock;
  ProgressEngine engine(0, clock);
  engine.poll_interval_seconds = 0.5;
  for (int tile = 0; tile < 100; ++tile) {
    engine.progress();
    clock.time += 0.125;
  }
  EXPECT_EQ(engine.polls(), 25);
}

TEST(ProgressEngine, WhatAnOperationThrowsBreaksTheGroup) {
  test::TestContext context;
  ProgressEngine engine(2, steady_clock());
  engine.poll_interval_seconds = 0.0;
  Counting fails(10);
  fails.in_advance = [] { throw CommError("a peer is gone", 1); };
  engine.attach(fails);
  engine.progress();  // keeps it
  EXPECT_TRUE(engine.broken());
  Counting other(1);
  EXPECT_THROW(
      {
        try {
          engine.wait(other, {"combine"}, context);
        } catch (const CommError& e) {
          EXPECT_STREQ(e.what(), "a peer is gone");
          throw;
        }
      },
      CommError);
  EXPECT_EQ(engine.attached(), 1) << "the waited-for one is attached for the wait only";
  engine.poll();
  EXPECT_EQ(fails.polls, 1) << "a broken engine drives nothing";
}

class Recorder final : public Logger {
 public:
  void log(LogLevel level, std::string_view message) override {
    EXPECT_EQ(level, LogLevel::warn);
    lines.emplace_back(message);
  }
  std::vector<std::string> lines;
};

TEST(ProgressEngine, WarnsOnceThenTimesOut) {
  test::TestContext owner;
  ExecutionContext context = owner;
  ManualClock clock;
  Recorder recorder;
  context.clock = &clock;
  context.logger = &recorder;
  context.deadlines = {5.0, 120.0};
  ProgressEngine engine(2, clock);
  Counting never(1 << 30);
  never.in_advance = [&] { clock.time += 0.25; };
  engine.attach(never);
  std::string text;
  try {
    engine.wait(never, {"dispatch", 7, 91}, context);
  } catch (const TimeoutError& e) {
    text = e.what();
    EXPECT_EQ(e.phase(), "dispatch");
  }
  EXPECT_EQ(text, "rank 2: waited 120 s for ranks 1, 3 in dispatch, layer 7, step 91");
  ASSERT_EQ(recorder.lines.size(), 1U);
  EXPECT_THAT(recorder.lines[0],
              ::testing::MatchesRegex("rank 2: waiting since .* s for ranks 1, 3 in dispatch, layer 7, step 91"));
  EXPECT_TRUE(engine.broken());
  EXPECT_THROW(engine.wait(never, {"combine"}, context), CommError);
}

TEST(ProgressEngine, AStopRequestEndsAWait) {
  test::TestContext owner;
  ExecutionContext context = owner;
  StopToken stop;
  context.stop = &stop;
  ProgressEngine engine(0, steady_clock());
  Counting never(1 << 30);
  never.in_advance = [&] { never.polls == 1000 ? stop.request_stop() : void(); };
  engine.attach(never);
  std::string text;
  try {
    engine.wait(never, {"combine", -1, 3}, context);
  } catch (const TimeoutError& e) {
    text = e.what();
  }
  EXPECT_THAT(text,
              ::testing::MatchesRegex("rank 0: was asked to stop, waited .* s for ranks 1, 3 in combine, step 3"));
  EXPECT_TRUE(engine.broken());
}

}  // namespace
}  // namespace epmoe::comm
