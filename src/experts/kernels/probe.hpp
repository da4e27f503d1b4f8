#pragma once
#include <stdint.h>

/// What the machine can do at most, one set of loops per ISA level. Like kernel_set.hpp, all that files with ISA flags
/// include beside vectors.hpp.
namespace epmoe {
struct CpuFeatures;
}
namespace epmoe::kernels {

/// The dot loops work in registers only, on independent sums, `rounds` times over all of them, and return the
/// operations done; a multiplication and an addition are two.
struct ProbeFunctions {
  /// Reads every byte of `bytes` (a multiple of 1024) in order and returns something that depends on all of them.
  uint64_t (*read)(const void* from, int64_t bytes);
  double (*f32)(int64_t rounds);
  double (*bf16)(int64_t rounds);
  double (*int8)(int64_t rounds);
};

struct ProbeSet {
  const char* name;
  bool (*supported)(const CpuFeatures&);
  const ProbeFunctions* functions;
};

/// The best level of this CPU: what a peak is measured with, whatever kernels are chosen.
const ProbeSet& best_probe_set();

}  // namespace epmoe::kernels
