#pragma once
#include <memory>
#include <string>

#include "epmoe/comm/communicator.hpp"
#include "epmoe/core/cpu_limits.hpp"

/// How the process sits on its machine: environment of the OpenMP run-time, cores it may use.
namespace epmoe::cli {

/// OpenMP reads its settings before main. Where the wait policy or the binding is unset, sets safe ones (waiting
/// threads sleep, OpenMP binds none, since make_executor() knows better which: spinning ranks on shared cores cost 20
/// times) and starts the program anew, once. Returns if there is nothing to set, or if the system cannot start it anew.
void restart_with_safe_defaults(char** argv);

struct CoreShare {
  CpuLimits limits;
  int usable = 1;        ///< cores that this process may run on
  int node = 1;          ///< cores that the ranks of this node may run on together
  int online = 1;        ///< cores of the machine
  int neighbours = 1;    ///< ranks on this node
  int threads = 1;       ///< threads for this rank that leave its neighbours theirs
  std::string unpinned;  ///< why its threads are not pinned whatever their number; empty: they can be
};
/// Collective. One thread a core, cores and quotas of control groups shared evenly by the ranks that have the same;
/// OMP_NUM_THREADS decides `threads` where it is set.
CoreShare share_cores(const comm::Communicator& world, const ExecutionContext& context);
/// Threads pinned to a core each where this rank has the cores to itself and the user binds nothing; the log says so,
/// or why not.
std::unique_ptr<Executor> make_executor(const CoreShare& share, int threads, const ExecutionContext& context);
/// "using 1 of 64 cores …" when the launcher's binding starves the ranks of this node, else empty.
std::string starved(const CoreShare& share);

}  // namespace epmoe::cli
