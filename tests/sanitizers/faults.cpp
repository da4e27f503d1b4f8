#include <atomic>
#include <climits>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "epmoe/comm/communicator.hpp"
#include "epmoe/comm/environment.hpp"
#include "epmoe/core/execution_context.hpp"

/// One fault, named by the argument, on the last rank of a program that uses MPI and the executor as ours do.
namespace epmoe {
namespace {

/// Through volatile objects, so that no compiler removes or foresees the fault.
void* volatile g_pointer = nullptr;
volatile int g_value = 0;

/// Several blocks: the last one's address may stay in a register or on a sleeping thread's stack.
void lose_memory() {
  for (int i = 0; i < 16; ++i) g_pointer = std::malloc(123);
  g_pointer = nullptr;
}

/// Two tasks for two workers: one worker loses memory, the other waits for that, so neither takes both.
constexpr int kNobody = -1;
void lose_memory_in_loop(int loser) {
  const auto executor = make_openmp_executor(2);
  std::atomic<bool> lost{loser == kNobody};
  auto body = [&](std::int64_t, int worker) {
    if (worker == loser) {
      lose_memory();
      lost = true;
    }
    while (!lost) std::this_thread::yield();
  };
  executor->run(2, body, nullptr);
}

/// Past the end by an address whose origin the compiler does not see: UndefinedBehaviorSanitizer would speak first.
void read_past_the_end() {
  void* const values = std::malloc(8 * sizeof(int));
  g_pointer = values;
  g_value = static_cast<volatile int*>(g_pointer)[8];
  std::free(values);
}

void read_after_free() {
  g_pointer = std::malloc(64);
  std::free(g_pointer);
  g_value = *static_cast<volatile int*>(g_pointer);
}

void overflow() {
  g_value = INT_MAX;
  const int most = g_value;
  g_value = most + 1;
}

void read_misaligned() {
  alignas(8) static char bytes[16] = {};
  g_pointer = bytes + 1;
  g_value = *static_cast<volatile int*>(g_pointer);
}

/// Two tasks that are under way together write what nothing guards, or each its own part of it.
void write_in_loop(bool same_place) {
  const auto executor = make_openmp_executor(2);
  std::atomic<int> under_way{0};
  std::int64_t values[2] = {};
  for (int round = 0; round < 100; ++round) {
    under_way = 0;
    executor->run(
        2,
        [&](std::int64_t task, int) {
          under_way.fetch_add(1, std::memory_order_relaxed);
          while (under_way.load(std::memory_order_relaxed) < 2) std::this_thread::yield();
          ++values[same_place ? 0 : task];
        },
        nullptr);
    ++values[0];  // ordered after both tasks and before those of the next round
  }
  g_value = static_cast<int>(values[0] + values[1]);
}

/// The value is published by a flag that orders nothing.
void publish_without_release() {
  int value = 0;
  std::atomic<bool> ready{false};
  std::thread writer([&] {
    value = 1;
    ready.store(true, std::memory_order_relaxed);
  });
  while (!ready.load(std::memory_order_relaxed)) std::this_thread::yield();
  g_value = value;
  writer.join();
}

bool commit(std::string_view fault) {
  if (fault == "none")
    lose_memory_in_loop(kNobody);
  else if (fault == "no_race_in_parallel_loop")
    write_in_loop(false);
  else if (fault == "race_in_parallel_loop")
    write_in_loop(true);
  else if (fault == "race_through_relaxed_flag")
    publish_without_release();
  else if (fault == "leak")
    lose_memory();
  else if (fault == "leak_in_parallel_loop")
    lose_memory_in_loop(0);
  else if (fault == "leak_in_worker_thread")
    lose_memory_in_loop(1);
  else if (fault == "out_of_bounds")
    read_past_the_end();
  else if (fault == "use_after_free")
    read_after_free();
  else if (fault == "signed_overflow")
    overflow();
  else if (fault == "misaligned")
    read_misaligned();
  else
    return false;
  return true;
}

}  // namespace
}  // namespace epmoe

int main(int argc, char** argv) {
  const epmoe::comm::Environment environment;
  const auto world = epmoe::comm::Communicator::world();
  if (world.rank() + 1 != world.size()) return 0;
  return argc == 2 && epmoe::commit(argv[1]) ? 0 : 2;
}
