#pragma once
#include <sched.h>

#include <vector>

namespace epmoe {

/// A set of CPUs, of any size of machine.
class AffinityMask {
 public:
  /// Where the calling thread may run; empty if the system does not say.
  static AffinityMask of_this_thread();
  static AffinityMask only(int cpu);

  /// Ascending.
  [[nodiscard]] std::vector<int> cpus() const;
  /// Lets the calling thread run here and nowhere else. False if the system does not.
  [[nodiscard]] bool apply() const;

 private:
  [[nodiscard]] std::size_t bytes() const { return sets_.size() * sizeof(cpu_set_t); }
  std::vector<cpu_set_t> sets_;  // one after another, as the CPU_*_S macros take them
};

}  // namespace epmoe
