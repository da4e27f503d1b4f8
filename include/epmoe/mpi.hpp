#pragma once
#include <mpi.h>

#include "epmoe/comm/communicator.hpp"

/// Opt-in, for programs that use MPI themselves; no other public header includes <mpi.h>.
namespace epmoe {

/// A communicator of ours over the ranks of the caller's, which is duplicated: their messages never meet, and the
/// caller's stays the caller's to free, before or after. Collective over it. InputError for MPI_COMM_NULL and
/// intercommunicators.
comm::Communicator from_mpi(MPI_Comm communicator);

}  // namespace epmoe
