#include "launch.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace epmoe::cli {
namespace {

constexpr const char* kRestarted = "EPMOE_RESTARTED";

bool any_set(std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [](const char* name) { return std::getenv(name) != nullptr; });
}

/// Set bits of a CPU mask, as indices; independent of the machine's number of cores.
std::vector<std::int32_t> usable_cores() {
  std::vector<std::int32_t> cores;
  for (int size = CPU_SETSIZE; size <= (1 << 20); size *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(size));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(size));
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    for (int i = 0; known && i < size; ++i)
      if (CPU_ISSET_S(static_cast<std::size_t>(i), bytes, set)) cores.push_back(i);
    CPU_FREE(set);
    if (known) break;
  }
  return cores;
}

}  // namespace

void restart_with_safe_defaults(char** argv) {
  if (std::getenv(kRestarted) != nullptr) return;
  const bool wait_policy = any_set({"OMP_WAIT_POLICY"});
  const bool binding = any_set({"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"});
  if (wait_policy && binding) return;
  if (!wait_policy) setenv("OMP_WAIT_POLICY", "passive", 1);
  if (!binding) setenv("OMP_PROC_BIND", "false", 1);
  setenv(kRestarted, "1", 1);
  // The path and not /proc/self/exe itself, which would be the emulator's under qemu.
  char path[PATH_MAX];
  const auto length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = '\0';
  execv(path, argv);  // returns only on failure: then the settings hold for nothing, and the run is merely slower
}

CoreShare share_cores(const comm::Communicator& world, const ExecutionContext& context) {
  const auto mine = usable_cores();
  const auto node = world.split_node();
  const auto bytes = std::as_bytes(std::span(mine));
  const auto all = node.all_gather(bytes, context, "comparing the cores of ranks");

  CoreShare share;
  share.usable = std::max(1, static_cast<int>(mine.size()));
  share.online = std::max(share.usable, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  share.neighbours = node.size();
  // A core that several ranks may use counts for each of them as a part.
  std::vector<std::int32_t> every;
  for (const auto& theirs : all) {
    std::vector<std::int32_t> cores(theirs.size() / sizeof(std::int32_t));
    if (!theirs.empty()) std::memcpy(cores.data(), theirs.data(), theirs.size());
    every.insert(every.end(), cores.begin(), cores.end());
  }
  double part = 0.0;
  for (const auto core : mine)
    part += 1.0 / static_cast<double>(std::max<std::ptrdiff_t>(1, std::count(every.begin(), every.end(), core)));
  share.threads = std::max(1, static_cast<int>(part + 0.01));
  std::sort(every.begin(), every.end());
  share.node = std::max(1, static_cast<int>(std::unique(every.begin(), every.end()) - every.begin()));
  if (const char* wanted = std::getenv("OMP_NUM_THREADS"); wanted != nullptr) {
    const int threads = std::atoi(wanted);  // the first of a list is the outermost level
    if (threads > 0) share.threads = threads;
  }
  return share;
}

std::string starved(const CoreShare& share) {
  if (share.node >= share.online) return {};
  return fmt::format(
      "using {} of {} cores{}: the launcher's binding leaves the rest idle (mpirun --bind-to none frees them)",
      share.node, share.online, share.neighbours > 1 ? fmt::format(" for {} ranks", share.neighbours) : std::string());
}

}  // namespace epmoe::cli
