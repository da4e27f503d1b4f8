#pragma once
#include <cstdint>

/// What this process has asked of MPI, counted by a PMPI shim. Link `epmoe_pmpi` (epmoe_add_test … LIBRARIES
/// epmoe_pmpi) and call one of these, so that the linker takes the shim.
namespace epmoe::test {

struct PmpiCounts {
  std::int64_t isend = 0, isend_bytes = 0;
  std::int64_t irecv = 0;
  std::int64_t iallgather = 0, iallgather_bytes = 0;    ///< bytes: this rank's contribution
  std::int64_t iallgatherv = 0, iallgatherv_bytes = 0;  ///< bytes: this rank's contribution
  std::int64_t other = 0;  ///< blocking point-to-point and collective calls, all-to-alls, reductions
};
/// Since the start or the last reset.
PmpiCounts pmpi_counts();
void reset_pmpi_counts();

}  // namespace epmoe::test
