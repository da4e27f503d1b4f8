#include "comm/live_counters.hpp"

#include "epmoe/comm/communicator.hpp"

namespace epmoe::comm {

LiveCounters& live_counters() {
  static LiveCounters counters;
  return counters;
}

LiveHandles live_handles() {
  const auto& c = live_counters();
  return {c.communicators.load(), c.datatypes.load(), c.windows.load(), c.requests.load()};
}

}  // namespace epmoe::comm
