#include "epmoe/core/cpu_limits.hpp"

#include <hwloc.h>
#include <omp.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>

#include "core/affinity_mask.hpp"

namespace epmoe {
namespace {

using Topology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

Topology load_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return {nullptr, hwloc_topology_destroy};
  Topology owned(topology, hwloc_topology_destroy);
  if (hwloc_topology_load(topology) != 0) owned.reset();
  return owned;
}

/// Where a CPU sits; a core of its own where hwloc does not know it.
UsableCpu locate(hwloc_topology_t topology, int cpu) {
  UsableCpu located{cpu, cpu, 0};
  if (topology == nullptr) return located;
  const hwloc_obj_t unit = hwloc_get_pu_obj_by_os_index(topology, static_cast<unsigned>(cpu));
  if (unit == nullptr) return located;
  const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, unit);
  // A core is named by its first CPU, so that names of CPUs and of cores never mean different things.
  if (core != nullptr) located.core = hwloc_bitmap_first(core->cpuset);
  if (const int node = hwloc_bitmap_first(unit->nodeset); node > 0) located.numa_node = node;
  return located;
}

/// Where the OpenMP run-time binds threads, the calling thread is on one of its places already.
std::vector<int> usable_cpus() {
  const int places = omp_get_proc_bind() == omp_proc_bind_false ? 0 : omp_get_num_places();
  std::set<int> cpus;
  for (int place = 0; place < places; ++place) {
    std::vector<int> of_place(static_cast<std::size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, of_place.data());
    cpus.insert(of_place.begin(), of_place.end());
  }
  if (cpus.empty()) return AffinityMask::of_this_thread().cpus();
  return {cpus.begin(), cpus.end()};
}

}  // namespace

CpuLimits read_cpu_limits() {
  CpuLimits limits;
  const Topology topology = load_topology();
  for (const int cpu : usable_cpus()) limits.cpus.push_back(locate(topology.get(), cpu));
  if (limits.cpus.empty()) limits.cpus.push_back({});
  limits.machine_cores = limits.cores();
  if (topology != nullptr)
    limits.machine_cores = std::max(limits.machine_cores, hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE));
  std::ifstream groups("/proc/self/cgroup");
  limits.quota = read_cpu_quota({std::istreambuf_iterator<char>(groups), {}}, "/sys/fs/cgroup");
  return limits;
}

int CpuLimits::cores() const {
  std::set<int> cores;
  for (const UsableCpu& cpu : cpus) cores.insert(cpu.core);
  return std::max(1, static_cast<int>(cores.size()));
}

int CpuLimits::threads() const {
  if (quota.cpus <= 0.0) return cores();
  constexpr double kRounding = 0.01;
  return std::max(1, static_cast<int>(std::min(static_cast<double>(cores()), quota.cpus + kRounding)));
}

std::vector<int> worker_cpus(const CpuLimits& limits, int threads) {
  if (threads > limits.cores()) return {};
  std::vector<UsableCpu> order = limits.cpus;
  std::stable_sort(order.begin(), order.end(),
                   [](const UsableCpu& a, const UsableCpu& b) { return a.numa_node < b.numa_node; });
  std::vector<int> chosen;
  std::set<int> taken;
  for (const UsableCpu& cpu : order)
    if (static_cast<int>(chosen.size()) < threads && taken.insert(cpu.core).second) chosen.push_back(cpu.cpu);
  return chosen;
}

}  // namespace epmoe
