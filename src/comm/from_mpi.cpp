#include "comm/native.hpp"
#include "epmoe/mpi.hpp"

namespace epmoe {

comm::Communicator from_mpi(MPI_Comm communicator) {
  comm::require_mpi();
  int is_inter = 0;
  if (communicator == MPI_COMM_NULL) throw InputError("from_mpi: found MPI_COMM_NULL, wanted a communicator");
  comm::check(MPI_Comm_test_inter(communicator, &is_inter), "MPI_Comm_test_inter");
  if (is_inter != 0) throw InputError("from_mpi: found an intercommunicator, wanted an intracommunicator");
  MPI_Comm copy = MPI_COMM_NULL;
  comm::check(MPI_Comm_dup(communicator, &copy), "MPI_Comm_dup");
  return comm::Communicator(std::make_unique<comm::Communicator::Native>(copy));
}

}  // namespace epmoe
