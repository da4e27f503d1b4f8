#include "epmoe/comm/topology.hpp"

#include <algorithm>
#include <cstring>
#include <map>

namespace epmoe::comm {
namespace {

std::vector<int> all_gather_int(const Communicator& comm, int value, const ExecutionContext& context) {
  std::vector<int> values;
  for (const auto& bytes : comm.all_gather(std::as_bytes(std::span(&value, 1)), context, "discovering nodes")) {
    int other = 0;
    std::memcpy(&other, bytes.data(), sizeof(other));
    values.push_back(other);
  }
  return values;
}

}  // namespace

Topology Topology::from_nodes(std::vector<int> node_of) {
  Topology topology;
  std::map<int, int> number;  // the caller's label → ours, by first appearance
  for (std::size_t rank = 0; rank < node_of.size(); ++rank) {
    const auto [it, is_new] = number.try_emplace(node_of[rank], topology.nodes());
    if (is_new) topology.members.emplace_back();
    node_of[rank] = it->second;
    topology.members[static_cast<std::size_t>(it->second)].push_back(static_cast<int>(rank));
  }
  topology.node_of = std::move(node_of);
  return topology;
}

Topology discover_topology(const Communicator& comm, const ExecutionContext& context) {
  comm.barrier(context, "discovering nodes");  // the split below cannot be polled: enter it together
  const Communicator node = comm.split_node();
  const auto on_node = all_gather_int(node, comm.rank(), context);
  return Topology::from_nodes(all_gather_int(comm, *std::min_element(on_node.begin(), on_node.end()), context));
}

}  // namespace epmoe::comm
