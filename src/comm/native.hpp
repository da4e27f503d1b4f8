#pragma once
#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "epmoe/comm/communicator.hpp"

namespace epmoe::comm {

/// MPI's own text for an error code.
std::string mpi_error_text(int code);
/// Throws CommError "MPI_Isend …: text" unless `code` is MPI_SUCCESS.
void check(int code, std::string_view call);
/// Throws CommError if MPI cannot be used now.
void require_mpi();

/// The handles behind a Communicator.
struct Communicator::Native {
  /// Takes `owned` over: sets MPI_ERRORS_RETURN and makes the block datatype.
  explicit Native(MPI_Comm owned);
  ~Native();
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;
  /// Counts the handles out and never frees them.
  void leak();

  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Datatype block = MPI_DATATYPE_NULL;  ///< 64 bytes, the unit of every message
  int rank = 0;
  int size = 1;
  std::int64_t message_bytes = 1LL << 28;  ///< most bytes that one start-up collective moves
  bool broken = false;                     ///< a start-up collective never ended: neither usable nor freed
  bool leaked = false;
};

}  // namespace epmoe::comm
