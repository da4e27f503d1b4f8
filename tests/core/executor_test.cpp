#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/affinity_mask.hpp"
#include "core/expect_error.hpp"
#include "epmoe/core/cpu_limits.hpp"
#include "epmoe/core/error.hpp"
#include "epmoe/core/execution_context.hpp"

namespace epmoe {
namespace {

class CountingHook final : public ProgressHook {
 public:
  void progress() override {
    ++calls;
    if (std::this_thread::get_id() != owner) foreign = true;
  }
  std::thread::id owner = std::this_thread::get_id();
  int calls = 0;
  bool foreign = false;
};

TEST(Executor, RunsEveryTaskOnce) {
  for (const int threads : {1, 2, 5}) {
    const auto executor = make_openmp_executor(threads);
    EXPECT_EQ(executor->workers(), threads);
    for (const std::int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
      std::atomic<bool> bad_worker{false};
      std::atomic<bool> stranger{false};
      const auto caller = std::this_thread::get_id();
      executor->run(
          tasks,
          [&](std::int64_t task, int worker) {
            ++runs[static_cast<std::size_t>(task)];
            if (worker < 0 || worker >= threads) bad_worker = true;
            if ((worker == 0) != (std::this_thread::get_id() == caller)) stranger = true;
          },
          nullptr);
      for (const auto& count : runs) EXPECT_EQ(count.load(), 1) << tasks << " tasks, " << threads << " threads";
      EXPECT_FALSE(bad_worker.load());
      EXPECT_FALSE(stranger.load()) << "worker 0 and the calling thread must be the same";
    }
  }
}

TEST(Executor, HookRunsOnTheCallingThreadBetweenTasks) {
  CountingHook alone;
  make_openmp_executor(1)->run(10, [](std::int64_t, int) {}, &alone);
  EXPECT_EQ(alone.calls, 10);

  CountingHook hook;
  std::atomic<int> by_caller{0};
  make_openmp_executor(3)->run(200, [&](std::int64_t, int worker) { by_caller += worker == 0 ? 1 : 0; }, &hook);
  EXPECT_EQ(hook.calls, by_caller.load());
  EXPECT_FALSE(hook.foreign);
}

TEST(Executor, ExceptionsArriveAtTheCaller) {
  for (const int threads : {1, 4}) {
    const auto executor = make_openmp_executor(threads);
    std::atomic<int> running{0};
    const auto failing = [&](std::int64_t task, int) {
      ++running;
      if (task == 3) {
        --running;
        throw std::runtime_error("task 3");
      }
      --running;
    };
    try {
      executor->run(1000, failing, nullptr);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "task 3");
    }
    EXPECT_EQ(running.load(), 0);
    // All of several failures at once, and use after a failure.
    EXPECT_THROW(
        executor->run(100, [](std::int64_t, int) { throw std::logic_error("each"); }, nullptr), std::logic_error);
    std::atomic<int> done{0};
    executor->run(50, [&](std::int64_t, int) { ++done; }, nullptr);
    EXPECT_EQ(done.load(), 50);
  }
}

TEST(Executor, ExceptionsOfTheHookArriveToo) {
  class Failing final : public ProgressHook {
   public:
    void progress() override { throw std::runtime_error("deadline"); }
  } hook;
  // Tasks for worker 0 never run out here: the others wait until it has had one.
  std::atomic<bool> had_one{false};
  const auto body = [&](std::int64_t, int worker) {
    if (worker == 0) had_one = true;
    while (!had_one.load()) std::this_thread::yield();
  };
  for (const int threads : {1, 2}) {
    had_one = false;
    EXPECT_THROW(make_openmp_executor(threads)->run(1000, body, &hook), std::runtime_error) << threads;
  }
}

TEST(Executor, IsRightInsideACallersParallelRegion) {
  const auto executor = make_openmp_executor(3);  // one executor used by several threads at a time
  std::atomic<std::int64_t> sum{0};
  std::atomic<int> callers{0};
#pragma omp parallel num_threads(2)
  {
    ++callers;
    executor->run(100, [&](std::int64_t task, int) { sum += task; }, nullptr);
  }
  EXPECT_EQ(sum.load(), callers.load() * 4950);
}

TEST(Executor, LeavesOpenMpSettingsAlone) {
  const int before = omp_get_max_threads();
  EXPECT_EQ(make_openmp_executor(0)->workers(), std::min(before, read_cpu_limits().threads()));
  make_openmp_executor(5)->run(10, [](std::int64_t, int) {}, nullptr);
  EXPECT_EQ(omp_get_max_threads(), before);
}

/// Runs `body` in a thread of its own, whose affinity is its own, too.
template <class Body>
void apart(Body&& body) {
  std::thread(body).join();
}

/// Where each worker of `threads` ran; all take part.
std::vector<int> cpus_of_workers(Executor& executor) {
  std::vector<int> cpus(static_cast<std::size_t>(executor.workers()), -1);
  std::atomic<int> arrived{0};
  executor.run(
      executor.workers(),
      [&](std::int64_t, int worker) {
        cpus[static_cast<std::size_t>(worker)] = sched_getcpu();
        ++arrived;
        while (arrived.load() < executor.workers()) std::this_thread::yield();  // no one takes a second task
      },
      nullptr);
  return cpus;
}

TEST(Executor, DefaultFollowsTheAffinityOfTheThread) {
  if (omp_get_proc_bind() != omp_proc_bind_false) GTEST_SKIP() << "the OpenMP run-time binds threads itself";
  apart([] {
    const auto all = AffinityMask::of_this_thread().cpus();
    omp_set_num_threads(4);  // of this thread only
    ASSERT_TRUE(AffinityMask::only(all.front()).apply());
    EXPECT_EQ(make_openmp_executor()->workers(), 1);
  });
}

TEST(Executor, PinnedWorkersStayOnTheirCpus) {
  if (omp_get_proc_bind() != omp_proc_bind_false) GTEST_SKIP() << "the OpenMP run-time binds threads itself";
  apart([] {
    const auto all = AffinityMask::of_this_thread().cpus();
    std::vector<int> reversed(all.rbegin(), all.rend());
    reversed.resize(std::min<std::size_t>(reversed.size(), 4));
    const auto threads = static_cast<int>(reversed.size());
    {
      const auto executor = make_openmp_executor(threads, reversed);
      EXPECT_EQ(AffinityMask::of_this_thread().cpus(), all) << "nothing before the first run";
      for (int i = 0; i < 20; ++i) EXPECT_EQ(cpus_of_workers(*executor), reversed);
      EXPECT_EQ(AffinityMask::of_this_thread().cpus(), std::vector<int>{reversed.front()});

      // Another thread's runs are not pinned.
      apart([&] {
        ASSERT_TRUE(AffinityMask::only(all.front()).apply());
        executor->run(1, [](std::int64_t, int) {}, nullptr);
        EXPECT_EQ(AffinityMask::of_this_thread().cpus(), std::vector<int>{all.front()});
      });
    }
    EXPECT_EQ(AffinityMask::of_this_thread().cpus(), all) << "undone";
    std::atomic<int> free{0};
#pragma omp parallel num_threads(threads)
    {
      if (AffinityMask::of_this_thread().cpus() == all) ++free;
    }
    EXPECT_EQ(free.load(), threads) << "undone for all workers";
  });
}

TEST(Executor, RunsInAParallelRegionAreNotPinned) {
  apart([] {
    const auto all = AffinityMask::of_this_thread().cpus();
    const auto executor = make_openmp_executor(1, {all.front()});
#pragma omp parallel num_threads(2)
    executor->run(3, [](std::int64_t, int) {}, nullptr);
    EXPECT_EQ(AffinityMask::of_this_thread().cpus(), all);
  });
}

TEST(Executor, RefusesCpusThatItCannotPinTo) {
  if (omp_get_proc_bind() != omp_proc_bind_false) GTEST_SKIP() << "the OpenMP run-time binds threads itself";
  const auto all = AffinityMask::of_this_thread().cpus();
  test::expect_error<ConfigError>([&] { make_openmp_executor(3, {all.front()}); }, "3 threads, 1 CPUs");
  test::expect_error<ConfigError>([&] { make_openmp_executor(1, {99'999}); }, "CPU 99999");
}

TEST(Clock, Advances) {
  const double start = steady_clock().now();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_GE(steady_clock().now() - start, 0.0019);
}

TEST(PhaseTimer, TellsTheObserver) {
  class OneSecondClock final : public Clock {
   public:
    [[nodiscard]] double now() const override { return time_ += 1.0; }

   private:
    mutable double time_ = 0.0;
  } clock;
  class Recorder final : public Observer {
   public:
    void add_time(Phase phase, double seconds) override {
      phase_ = phase;
      seconds_ = seconds;
    }
    void message(Phase, int, bool, std::int64_t, std::int64_t) override {}
    void expert_rows(std::int32_t, std::int64_t) override {}
    Phase phase_ = Phase::count;
    double seconds_ = 0.0;
  } recorder;
  ExecutionContext context;
  context.clock = &clock;
  {
    const PhaseTimer nobody_listens(context, Phase::route);
  }
  context.observer = &recorder;
  {
    const PhaseTimer timer(context, Phase::gemm2);
  }
  EXPECT_EQ(recorder.phase_, Phase::gemm2);
  EXPECT_EQ(recorder.seconds_, 1.0);
  EXPECT_EQ(name(Phase::gemm2), "gemm2");
}

}  // namespace
}  // namespace epmoe
