#pragma once
#include <vector>

#include "epmoe/comm/communicator.hpp"

namespace epmoe::comm {

/// Which ranks sit on which node. Nodes are numbered by their lowest rank.
struct Topology {
  std::vector<int> node_of;               ///< [ranks]
  std::vector<std::vector<int>> members;  ///< [nodes] ranks, ascending
  [[nodiscard]] int nodes() const { return static_cast<int>(members.size()); }
  /// From a given node number per rank (tests, simulators).
  static Topology from_nodes(std::vector<int> node_of);
};
/// Collective: by MPI_Comm_split_type(SHARED).
Topology discover_topology(const Communicator& comm, const ExecutionContext& context);

}  // namespace epmoe::comm
