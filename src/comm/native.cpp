#include "comm/native.hpp"

#include <fmt/format.h>

#include "comm/live_counters.hpp"
#include "epmoe/comm/request_set.hpp"

namespace epmoe::comm {

std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("MPI error {}", code);
  return {text, static_cast<std::size_t>(length)};
}

void check(int code, std::string_view call) {
  if (code != MPI_SUCCESS) throw CommError(fmt::format("{}: {}", call, mpi_error_text(code)));
}

void require_mpi() {
  int initialized = 0;
  int finalized = 0;
  check(MPI_Initialized(&initialized), "MPI_Initialized");
  check(MPI_Finalized(&finalized), "MPI_Finalized");
  if (initialized == 0) throw CommError("MPI is not initialised: make a comm::Environment first");
  if (finalized != 0) throw CommError("MPI is already finalised");
}

Communicator::Native::Native(MPI_Comm owned) : comm(owned) {
  check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  check(MPI_Type_contiguous(static_cast<int>(kBlockBytes), MPI_BYTE, &block), "MPI_Type_contiguous");
  check(MPI_Type_commit(&block), "MPI_Type_commit");
  ++live_counters().communicators;
  ++live_counters().datatypes;
}

Communicator::Native::~Native() {
  if (leaked) return;
  int finalized = 0;
  if (broken || MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0) {
    leak();
    return;
  }
  // A destructor cannot report; a handle that MPI refuses to free stays counted, so tests see it.
  if (MPI_Type_free(&block) == MPI_SUCCESS) --live_counters().datatypes;
  if (MPI_Comm_free(&comm) == MPI_SUCCESS) --live_counters().communicators;
}

void Communicator::Native::leak() {
  if (leaked) return;
  leaked = true;
  --live_counters().datatypes;
  --live_counters().communicators;
}

}  // namespace epmoe::comm
