#include "runtime/chunks.hpp"

#include <algorithm>
#include <limits>

namespace epmoe {

ChunkLimits chunk_limits(const Experts& experts, const KernelConfig& config) {
  constexpr auto kUnbounded = std::numeric_limits<std::int64_t>::max();
  if (!config.chunking || !experts.supports_chunking()) return {kUnbounded, kUnbounded};
  // What one more (row, expert) pair costs, read off the formula far from its rounding.
  constexpr std::int64_t kMany = 4096;
  const auto shapes = experts.workspace_shapes(kMany, kMany);
  const auto per_entry = ceil_div(shapes.workspace13_bytes + shapes.workspace2_bytes, kMany) +
                         experts.config().shape.hidden * size_bytes(DType::f32);
  return {config.chunk_rows, std::max<std::int64_t>(1, config.chunk_budget_bytes / per_entry)};
}

std::vector<Chunk> cut_chunks(const DispatchedRouting& routing, const ChunkLimits& limits) {
  std::vector<Chunk> chunks;
  const auto rows = routing.rows();
  for (std::int64_t first = 0; first < rows;) {
    const auto first_entry = routing.row_begin[static_cast<std::size_t>(first)];
    std::int64_t end = first + 1;
    while (end < rows && end - first < limits.rows &&
           routing.row_begin[static_cast<std::size_t>(end + 1)] - first_entry <= limits.entries)
      ++end;
    chunks.push_back({first, end - first});
    first = end;
  }
  return chunks;
}

}  // namespace epmoe
