#pragma once
#include <string>

#include "epmoe/core/execution_context.hpp"

namespace epmoe::comm {

/// MPI's life time. Initialises MPI with MPI_THREAD_SERIALIZED (or `multiple`) unless the program has done so, and
/// finalises it only if it initialised it. What it initialised returns errors instead of aborting; a program that
/// initialises MPICH itself sets MPI_ERRORS_RETURN on MPI_COMM_WORLD and MPI_COMM_SELF if it wants the same. Throws
/// CommError if the thread level provided is lower than SERIALIZED. One per process, created and destroyed on the main
/// thread.
class Environment {
 public:
  explicit Environment(bool multiple = false);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  /// Leaves MPI unfinalised: after a broken step the process must leave by _Exit.
  void abandon() { finalize_ = false; }
  [[nodiscard]] bool threads_multiple() const { return multiple_; }
  /// "Open MPI 4.1.4, MPI 3.1".
  [[nodiscard]] static std::string library_version();
  [[nodiscard]] static std::string processor_name();
  /// MPI_Wtime, so that a simulated clock is followed.
  [[nodiscard]] static const Clock& clock();

 private:
  bool finalize_ = false;
  bool multiple_ = false;
};

}  // namespace epmoe::comm
