// What threads of one rank tell each other, in shapes that a CPU with weak memory ordering would get wrong if an
// acquire or a release were missing. The last test is a control: it counts what this machine reorders where nothing is
// ordered, so that a report of an Arm machine says what the others withstood.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "epmoe/core/aligned_memory.hpp"
#include "epmoe/core/execution_context.hpp"

namespace epmoe {
namespace {

constexpr int kThreads = 4;
constexpr std::int64_t kSlots = 50000;

/// A cache line of its own.
struct alignas(kCacheLineBytes) Cell {
  std::int64_t value = 0;
};

/// Lets go of the core now and then: threads may outnumber cores.
class Pause {
 public:
  void operator()() {
    if (++spins_ % 200 == 0) std::this_thread::yield();
  }

 private:
  std::int64_t spins_ = 0;
};

/// All threads start what follows at about the same time.
class Start {
 public:
  explicit Start(int threads) : missing_(threads) {}
  void wait() {
    missing_.fetch_sub(1);
    for (Pause pause; missing_.load() > 0;) pause();
  }

 private:
  std::atomic<int> missing_;
};

TEST(MemoryOrder, TasksSeeWhatCameBeforeAndAreSeenAfter) {
  const auto executor = make_openmp_executor(kThreads);
  constexpr std::int64_t kTasks = 4 * kThreads;
  std::vector<Cell> input(kTasks), output(kTasks);
  std::atomic<std::int64_t> stale_input{0}, stale_output{0};
  std::int64_t unseen = 0;
  for (std::int64_t round = 1; round <= 2000; ++round) {
    for (Cell& cell : input) cell.value = round;
    // From the second part on tasks read what tasks of other workers wrote in the part before.
    for (std::int64_t part = 0; part < 3; ++part) {
      executor->run(
          kTasks,
          [&](std::int64_t task, int) {
            const auto at = static_cast<std::size_t>(task);
            const auto other = static_cast<std::size_t>((task + 5) % kTasks);
            if (input[other].value != round + (part > 0 ? 1 : 0)) stale_input.fetch_add(1, std::memory_order_relaxed);
            if (part == 1) output[at].value = input[other].value;
            if (part == 2 && output[other].value != round + 1) stale_output.fetch_add(1, std::memory_order_relaxed);
          },
          nullptr);
      if (part > 0) continue;
      for (Cell& cell : input) ++cell.value;
    }
    for (const Cell& cell : output) unseen += cell.value != round + 1 ? 1 : 0;
  }
  EXPECT_EQ(stale_input.load(), 0);
  EXPECT_EQ(stale_output.load(), 0);
  EXPECT_EQ(unseen, 0);
}

TEST(MemoryOrder, ATaskIsTakenOnce) {
  const auto executor = make_openmp_executor(kThreads);
  std::vector<std::int64_t> taken(kSlots);  // tiny tasks, so that the counter is fought for
  for (std::int64_t round = 1; round <= 100; ++round) {
    std::atomic<int> present{0};
    const double start = steady_clock().now();
    executor->run(
        static_cast<std::int64_t>(taken.size()),
        [&](std::int64_t task, int) {
          ++taken[static_cast<std::size_t>(task)];
          if (task >= 2) return;  // whoever comes first waits for company, but not for threads that never come
          present.fetch_add(1);
          for (Pause pause; present.load() < 2 && steady_clock().now() < start + 0.1;) pause();
        },
        nullptr);
    const auto wrong = std::count_if(taken.begin(), taken.end(), [&](std::int64_t count) { return count != round; });
    ASSERT_EQ(wrong, 0) << "tasks not run exactly once, round " << round;
  }
}

TEST(MemoryOrder, AnExceptionBringsWhatItsThreadWrote) {
  const auto executor = make_openmp_executor(kThreads);
  std::vector<Cell> cells(kThreads);
  struct Failure {
    int worker;
    std::int64_t round;
  };
  std::int64_t stale = 0;
  for (std::int64_t round = 1; round <= 500; ++round) {
    bool thrown = false;
    try {
      executor->run(
          1000,
          [&](std::int64_t task, int worker) {
            cells[static_cast<std::size_t>(worker)].value = round;
            if (task % 7 == 3) throw Failure{worker, round};
          },
          nullptr);
    } catch (const Failure& failure) {
      thrown = true;
      stale += failure.round != round ? 1 : 0;
      stale += cells[static_cast<std::size_t>(failure.worker)].value != round ? 1 : 0;
    }
    ASSERT_TRUE(thrown);
  }
  EXPECT_EQ(stale, 0);
}

/// One thread writes payload, then flag, of slot after slot, never far ahead of another, which waits for each flag and
/// reads the payload. Returns how often the payload was not there.
template <class Payload, class Set, class Seen>
std::int64_t stale_messages(std::vector<Payload>& payload, Set&& set, Seen&& seen) {
  constexpr std::int64_t kAhead = 2;
  Start start(2);
  std::atomic<std::int64_t> read{0};  // orders nothing that is looked for: it goes the other way
  std::int64_t stale = 0;
  const auto count = static_cast<std::int64_t>(payload.size());
  std::thread reader([&] {
    // With the lines in the reader's cache, a payload that is read too early is an old one.
    std::int64_t old = 0;
    for (const Payload& p : payload) old += p.value;
    start.wait();
    for (std::int64_t i = 0; i < count; ++i) {
      for (Pause pause; !seen(i);) pause();
      stale += payload[static_cast<std::size_t>(i)].value != i + 1 ? 1 : 0;
      read.store(i, std::memory_order_relaxed);
    }
    stale += old;  // was 0
  });
  start.wait();
  for (std::int64_t i = 0; i < count; ++i) {
    for (Pause pause; read.load(std::memory_order_relaxed) + kAhead < i;) pause();
    payload[static_cast<std::size_t>(i)].value = i + 1;
    set(i);
  }
  reader.join();
  return stale;
}

TEST(MemoryOrder, WhoIsStoppedSeesWhatCameBefore) {
  std::vector<Cell> payload(kSlots);
  std::vector<StopToken> tokens(kSlots);
  const auto stale = stale_messages(
      payload, [&](std::int64_t i) { tokens[static_cast<std::size_t>(i)].request_stop(); },
      [&](std::int64_t i) { return tokens[static_cast<std::size_t>(i)].stop_requested(); });
  EXPECT_EQ(stale, 0);
}

struct alignas(kCacheLineBytes) RelaxedValue {
  std::int64_t operator=(std::int64_t other) {
    atomic.store(other, std::memory_order_relaxed);
    return other;
  }
  operator std::int64_t() const { return atomic.load(std::memory_order_relaxed); }
  std::atomic<std::int64_t> atomic{0};
};
struct RelaxedCell {
  RelaxedValue value;
};

/// Two threads each write a cell of a slot and read the other's; returns how often both read the old value.
std::int64_t both_missed() {
  struct Side {
    std::vector<RelaxedCell> cells = std::vector<RelaxedCell>(kSlots);
    std::vector<std::int64_t> read = std::vector<std::int64_t>(kSlots);
    std::atomic<std::int64_t> at{-1};
  };
  Side sides[2];
  const auto run = [](Side& own, Side& other) {
    for (std::int64_t i = 0; i < kSlots; ++i) {
      own.at.store(i);
      for (Pause pause; other.at.load() < i;) pause();
      own.cells[static_cast<std::size_t>(i)].value = 1;
      own.read[static_cast<std::size_t>(i)] = other.cells[static_cast<std::size_t>(i)].value;
    }
    own.at.store(kSlots);
  };
  std::thread second([&] { run(sides[1], sides[0]); });
  run(sides[0], sides[1]);
  second.join();
  std::int64_t missed = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(kSlots); ++i)
    missed += sides[0].read[i] == 0 && sides[1].read[i] == 0 ? 1 : 0;
  return missed;
}

TEST(MemoryOrder, ControlCountsWhatThisMachineReorders) {
  std::vector<RelaxedCell> payload(kSlots), flags(kSlots);
  const auto stale = stale_messages(
      payload, [&](std::int64_t i) { flags[static_cast<std::size_t>(i)].value = 1; },
      [&](std::int64_t i) { return flags[static_cast<std::size_t>(i)].value == 1; });
  const auto missed = both_missed();
#if defined(__x86_64__)
  EXPECT_EQ(stale, 0) << "x86-64 keeps the order of stores and that of loads";
#endif
  RecordProperty("slots", std::to_string(kSlots));
  RecordProperty("messages_out_of_order", std::to_string(stale));
  RecordProperty("stores_after_loads", std::to_string(missed));
  RecordProperty("hardware_threads", std::to_string(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace epmoe
