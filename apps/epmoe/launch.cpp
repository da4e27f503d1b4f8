#include "launch.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace epmoe::cli {
namespace {

constexpr const char* kRestarted = "EPMOE_RESTARTED";
constexpr const char* kOwnBinding = "EPMOE_OWN_BINDING";  // OMP_PROC_BIND is ours, not the user's

bool any_set(std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [](const char* name) { return std::getenv(name) != nullptr; });
}

/// What every rank of the node says of itself, by rank.
std::vector<std::string> gather(const comm::Communicator& node, const std::string& mine, const char* what,
                                const ExecutionContext& context) {
  std::vector<std::string> all;
  for (const auto& bytes : node.all_gather(std::as_bytes(std::span(mine.data(), mine.size())), context, what))
    all.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return all;
}

std::string as_bytes(const std::vector<std::int32_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(std::int32_t)};
}

/// Why threads should not be pinned whatever their number, or nothing.
std::string unpinned_because(const CoreShare& share, bool overlap) {
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"})
    if (const char* value = std::getenv(name); value != nullptr && std::getenv(kOwnBinding) == nullptr)
      return fmt::format("{}={} is set, and decides", name, value);
  if (overlap) return fmt::format("{} ranks of this node may run on the same cores", share.neighbours);
  return {};
}

}  // namespace

void restart_with_safe_defaults(char** argv) {
  if (std::getenv(kRestarted) != nullptr) return;
  const bool wait_policy = any_set({"OMP_WAIT_POLICY"});
  const bool binding = any_set({"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"});
  if (wait_policy && binding) return;
  if (!wait_policy) setenv("OMP_WAIT_POLICY", "passive", 1);
  if (!binding) {
    setenv("OMP_PROC_BIND", "false", 1);
    setenv(kOwnBinding, "1", 1);
  }
  setenv(kRestarted, "1", 1);
  // The path and not /proc/self/exe itself, which would be the emulator's under qemu.
  char path[PATH_MAX];
  const auto length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = '\0';
  execv(path, argv);  // returns only on failure: then the settings hold for nothing, and the run is merely slower
}

CoreShare share_cores(const comm::Communicator& world, const ExecutionContext& context) {
  CoreShare share;
  share.limits = read_cpu_limits();
  std::vector<std::int32_t> mine;
  for (const UsableCpu& cpu : share.limits.cpus) mine.push_back(cpu.core);
  std::sort(mine.begin(), mine.end());
  mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
  const auto node = world.split_node();
  const auto all = gather(node, as_bytes(mine), "comparing the cores of ranks", context);
  const auto groups = gather(node, share.limits.quota.group, "comparing the control groups of ranks", context);

  share.usable = static_cast<int>(mine.size());
  share.online = share.limits.machine_cores;
  share.neighbours = node.size();
  // A core that several ranks may use counts for each of them as a part.
  std::vector<std::int32_t> every;
  for (const std::string& theirs : all) {
    std::vector<std::int32_t> cores(theirs.size() / sizeof(std::int32_t));
    if (!theirs.empty()) std::memcpy(cores.data(), theirs.data(), theirs.size());
    every.insert(every.end(), cores.begin(), cores.end());
  }
  double part = 0.0;
  bool overlap = false;
  for (const auto core : mine) {
    const auto ranks = std::max<std::ptrdiff_t>(1, std::count(every.begin(), every.end(), core));
    part += 1.0 / static_cast<double>(ranks);
    overlap = overlap || ranks > 1;
  }
  if (const CpuQuota& quota = share.limits.quota; quota.cpus > 0.0)
    part = std::min(part, quota.cpus / static_cast<double>(std::count(groups.begin(), groups.end(), quota.group)));
  share.threads = std::max(1, static_cast<int>(part + 0.01));
  std::sort(every.begin(), every.end());
  share.node = std::max(1, static_cast<int>(std::unique(every.begin(), every.end()) - every.begin()));
  if (const char* wanted = std::getenv("OMP_NUM_THREADS"); wanted != nullptr) {
    const int threads = std::atoi(wanted);  // the first of a list is the outermost level
    if (threads > 0) share.threads = threads;
  }
  share.unpinned = unpinned_because(share, overlap);
  return share;
}

std::unique_ptr<Executor> make_executor(const CoreShare& share, int threads, const ExecutionContext& context) {
  std::vector<int> cpus;
  std::string why_not = share.unpinned;
  if (why_not.empty() && (cpus = worker_cpus(share.limits, threads)).empty())
    why_not = fmt::format("{} threads on {} cores", threads, share.usable);
  context.log(LogLevel::debug, cpus.empty() ? fmt::format("threads are not pinned: {}", why_not)
                                            : fmt::format("threads are pinned to CPUs {}", fmt::join(cpus, ", ")));
  return make_openmp_executor(threads, std::move(cpus));
}

std::string starved(const CoreShare& share) {
  if (share.node >= share.online) return {};
  return fmt::format(
      "using {} of {} cores{}: the launcher's binding leaves the rest idle (mpirun --bind-to none frees them)",
      share.node, share.online, share.neighbours > 1 ? fmt::format(" for {} ranks", share.neighbours) : std::string());
}

}  // namespace epmoe::cli
