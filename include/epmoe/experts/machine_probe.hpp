#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "epmoe/core/execution_context.hpp"

/// What this machine can do at most, measured beside a benchmark: the two limits of a grouped GEMM. Local; one call at
/// a time per object.
namespace epmoe {

/// The multiplication whose rate in registers is a peak.
enum class DotType : std::uint8_t { f32, bf16, int8 };

class MachineProbe {
 public:
  /// Owns `bytes` of memory to read (rounded up to 2 MiB), on huge pages where the system gives them; it should be far
  /// above the last-level cache. InternalError naming the bytes when there is no memory.
  explicit MachineProbe(std::int64_t bytes);
  ~MachineProbe();
  MachineProbe(const MachineProbe&) = delete;
  MachineProbe& operator=(const MachineProbe&) = delete;

  /// The best ISA level of this CPU, with which everything is measured whatever kernels are chosen.
  static std::string_view isa();
  /// Bytes per second of all workers of `executor` together, one sequential stream per worker, over `bytes` that were
  /// not read for the longest time.
  double read_bytes_per_s(Executor& executor, std::int64_t bytes = std::int64_t{128} << 20U);
  /// Operations per second (a product and its sum are two) of all workers together, operands in registers.
  double dots_per_s(DotType type, Executor& executor);

 private:
  std::byte* memory_ = nullptr;
  std::int64_t bytes_ = 0;
  std::vector<std::int64_t> next_;  // [workers] chunk of its part that each reads next
};

}  // namespace epmoe
