#include "comm/startup_wait.hpp"

#include <fmt/format.h>

#include <thread>

#include "comm/live_counters.hpp"

namespace epmoe::comm {

void require_usable(const Communicator::Native& native, const std::string& what) {
  require_mpi();
  if (native.broken)
    throw CommError(fmt::format("rank {}: {} on a communicator that an earlier call broke", native.rank, what),
                    native.rank, what);
}

void wait_startup(Communicator::Native& native, MPI_Request& request, const ExecutionContext& context,
                  const std::string& what) {
  constexpr int kSpins = 20;  // ranks may outnumber cores, and start-up is in no hurry
  ++live_counters().requests;
  const auto give_up = [&] {
    --live_counters().requests;
    native.broken = true;
  };
  const double start = context.clock->now();
  bool told = false;
  for (int polls = 0;; ++polls) {
    int done = 0;
    const int code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) {
      give_up();
      throw CommError(fmt::format("rank {}: {}: {}", native.rank, what, mpi_error_text(code)), native.rank, what);
    }
    if (done != 0) break;
    if (polls < kSpins) continue;
    std::this_thread::yield();
    const double waited = context.clock->now() - start;
    const bool stop = context.stop != nullptr && context.stop->stop_requested();
    if (stop || waited >= context.deadlines.hard_seconds) {
      give_up();
      throw TimeoutError(fmt::format("rank {}: {} after {:.3g} s of waiting for its peers in {}", native.rank,
                                     stop ? "asked to stop" : "gave up", waited, what),
                         -1, what);
    }
    if (!told && waited >= context.deadlines.soft_seconds) {
      told = true;
      context.log(LogLevel::warn,
                  fmt::format("rank {}: waiting for its peers in {} since {:.3g} s", native.rank, what, waited));
    }
  }
  --live_counters().requests;
}

}  // namespace epmoe::comm
