#pragma once
#include <memory>
#include <string>

#include "comm/native.hpp"

namespace epmoe::comm {

/// Waits for one non-blocking start-up collective under context.deadlines, yielding between polls. On TimeoutError
/// the request is given up and the communicator is broken.
void wait_startup(Communicator::Native& native, MPI_Request& request, const ExecutionContext& context,
                  const std::string& what);

/// wait_startup for a collective whose memory hangs on `buffers`: MPI may still use it if the wait fails, so then it
/// is given up for good.
template <class Buffers>
void wait_startup(Communicator::Native& native, MPI_Request& request, std::unique_ptr<Buffers>& buffers,
                  const ExecutionContext& context, const std::string& what) {
  try {
    wait_startup(native, request, context, what);
  } catch (...) {
    (void)buffers.release();
    throw;
  }
}

/// Throws CommError if an earlier start-up collective of this communicator never ended.
void require_usable(const Communicator::Native& native, const std::string& what);

}  // namespace epmoe::comm
