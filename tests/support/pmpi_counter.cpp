#include "support/pmpi_counter.hpp"

#include <mpi.h>

namespace epmoe::test {
namespace {

PmpiCounts g_counts;

std::int64_t bytes_of(int count, MPI_Datatype type) {
  int size = 0;
  PMPI_Type_size(type, &size);
  return static_cast<std::int64_t>(count) * size;
}

}  // namespace

PmpiCounts pmpi_counts() {
  return g_counts;
}
void reset_pmpi_counts() {
  g_counts = {};
}

}  // namespace epmoe::test

using epmoe::test::bytes_of;
using epmoe::test::g_counts;

extern "C" {

int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request* request) {
  ++g_counts.isend;
  g_counts.isend_bytes += bytes_of(count, type);
  return PMPI_Isend(data, count, type, peer, tag, comm, request);
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request* request) {
  ++g_counts.irecv;
  return PMPI_Irecv(data, count, type, peer, tag, comm, request);
}

int MPI_Iallgather(const void* data, int count, MPI_Datatype type, void* into, int into_count, MPI_Datatype into_type,
                   MPI_Comm comm, MPI_Request* request) {
  ++g_counts.iallgather;
  g_counts.iallgather_bytes += bytes_of(count, type);
  return PMPI_Iallgather(data, count, type, into, into_count, into_type, comm, request);
}

int MPI_Iallgatherv(const void* data, int count, MPI_Datatype type, void* into, const int* counts,
                    const int* displacements, MPI_Datatype into_type, MPI_Comm comm, MPI_Request* request) {
  ++g_counts.iallgatherv;
  g_counts.iallgatherv_bytes += bytes_of(count, type);
  return PMPI_Iallgatherv(data, count, type, into, counts, displacements, into_type, comm, request);
}

int MPI_Send(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm) {
  ++g_counts.other;
  return PMPI_Send(data, count, type, peer, tag, comm);
}

int MPI_Recv(void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Status* status) {
  ++g_counts.other;
  return PMPI_Recv(data, count, type, peer, tag, comm, status);
}

int MPI_Barrier(MPI_Comm comm) {
  ++g_counts.other;
  return PMPI_Barrier(comm);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  ++g_counts.other;
  return PMPI_Ibarrier(comm, request);
}

int MPI_Allgather(const void* data, int count, MPI_Datatype type, void* into, int into_count, MPI_Datatype into_type,
                  MPI_Comm comm) {
  ++g_counts.other;
  return PMPI_Allgather(data, count, type, into, into_count, into_type, comm);
}

int MPI_Allreduce(const void* data, void* into, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  ++g_counts.other;
  return PMPI_Allreduce(data, into, count, type, op, comm);
}

int MPI_Ialltoallv(const void* data, const int* counts, const int* displacements, MPI_Datatype type, void* into,
                   const int* into_counts, const int* into_displacements, MPI_Datatype into_type, MPI_Comm comm,
                   MPI_Request* request) {
  ++g_counts.other;
  return PMPI_Ialltoallv(data, counts, displacements, type, into, into_counts, into_displacements, into_type, comm,
                         request);
}

}  // extern "C"
