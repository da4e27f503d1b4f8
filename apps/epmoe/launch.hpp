#pragma once
#include <string>

#include "epmoe/comm/communicator.hpp"

/// How the process sits on its machine: environment of the OpenMP run-time, cores it may use.
namespace epmoe::cli {

/// OpenMP reads its settings before main. Where the wait policy or the binding is unset, sets safe ones (waiting
/// threads sleep, threads are not bound: spinning ranks on shared cores cost 20 times) and starts the program anew,
/// once. Returns if there is nothing to set, or if the system cannot start it anew.
void restart_with_safe_defaults(char** argv);

struct CoreShare {
  int usable = 1;      ///< cores that this process may run on
  int node = 1;        ///< cores that the ranks of this node may run on together
  int online = 1;      ///< cores of the machine
  int neighbours = 1;  ///< ranks on this node
  int threads = 1;     ///< threads for this rank that leave its neighbours theirs
};
/// Collective. OMP_NUM_THREADS decides `threads` where it is set.
CoreShare share_cores(const comm::Communicator& world, const ExecutionContext& context);
/// "using 1 of 64 cores …" when the launcher's binding starves the ranks of this node, else empty.
std::string starved(const CoreShare& share);

}  // namespace epmoe::cli
