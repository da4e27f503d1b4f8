#pragma once
#include <string>
#include <vector>

/// What the system lets this process compute with: affinity, cores, control groups. Local; everything is read anew at
/// each call, and no environment variable by us.
namespace epmoe {

/// A logical CPU that the calling thread may run on.
struct UsableCpu {
  int cpu = 0;        ///< the system's number
  int core = 0;       ///< CPUs with the same number share a core
  int numa_node = 0;  ///< whose memory is near
};

/// How much CPU time a control group grants.
struct CpuQuota {
  double cpus = 0.0;  ///< CPUs' worth of time, 0 = no limit
  std::string group;  ///< directory of the group that limits: processes with the same one share the quota
};
/// The lowest limit of the process's groups and all groups above them, of version 2 (cpu.max) and version 1
/// (cpu.cfs_quota_us / cpu.cfs_period_us). `self_cgroup` is the text of /proc/self/cgroup, `mount` is /sys/fs/cgroup.
/// A file that is not there or cannot be understood limits nothing.
CpuQuota read_cpu_quota(const std::string& self_cgroup, const std::string& mount);

struct CpuLimits {
  std::vector<UsableCpu> cpus;  ///< never empty; ascending
  int machine_cores = 1;        ///< cores of the machine, as far as this process is allowed to see
  CpuQuota quota;

  /// Cores that the usable CPUs belong to.
  [[nodiscard]] int cores() const;
  /// How many threads can compute without being in each other's way: one a core, and no more than the quota rounded
  /// down, since a thread that used its time up holds up all others at the next barrier. At least 1.
  [[nodiscard]] int threads() const;
};
/// Affinity of the calling thread (sched_getaffinity), or the places of the OpenMP run-time if it binds threads; cores
/// and NUMA nodes as hwloc sees them (each CPU its own core where it sees none).
CpuLimits read_cpu_limits();

/// The CPU of each of `threads` workers: one core each, NUMA node by NUMA node. Empty when there are fewer cores.
std::vector<int> worker_cpus(const CpuLimits& limits, int threads);

}  // namespace epmoe
