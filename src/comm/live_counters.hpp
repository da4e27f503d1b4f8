#pragma once
#include <atomic>
#include <cstdint>

namespace epmoe::comm {

/// Process-wide, because MPI's handles are: the numbers behind live_handles().
struct LiveCounters {
  std::atomic<std::int64_t> communicators{0}, datatypes{0}, windows{0}, requests{0};
};
LiveCounters& live_counters();

}  // namespace epmoe::comm
