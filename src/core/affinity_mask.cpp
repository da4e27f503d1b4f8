#include "core/affinity_mask.hpp"

#include <cstring>

namespace epmoe {
namespace {

constexpr std::size_t kMostSets = 1024;  // a million CPUs

cpu_set_t no_cpus() {
  cpu_set_t set;
  std::memset(&set, 0, sizeof set);
  return set;
}

}  // namespace

AffinityMask AffinityMask::of_this_thread() {
  AffinityMask mask;
  // The system refuses a set that is too small for all its CPUs.
  for (std::size_t sets = 1; sets <= kMostSets; sets *= 2) {
    mask.sets_.assign(sets, no_cpus());
    if (sched_getaffinity(0, mask.bytes(), mask.sets_.data()) == 0) return mask;
  }
  return {};
}

AffinityMask AffinityMask::only(int cpu) {
  AffinityMask mask;
  mask.sets_.assign(static_cast<std::size_t>(cpu) / CPU_SETSIZE + 1, no_cpus());
  CPU_SET_S(static_cast<std::size_t>(cpu), mask.bytes(), mask.sets_.data());
  return mask;
}

std::vector<int> AffinityMask::cpus() const {
  std::vector<int> cpus;
  for (std::size_t cpu = 0; cpu < 8 * bytes(); ++cpu)
    if (CPU_ISSET_S(cpu, bytes(), sets_.data())) cpus.push_back(static_cast<int>(cpu));
  return cpus;
}

bool AffinityMask::apply() const {
  return !sets_.empty() && sched_setaffinity(0, bytes(), sets_.data()) == 0;
}

}  // namespace epmoe
