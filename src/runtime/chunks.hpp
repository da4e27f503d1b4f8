#pragma once
#include <cstdint>
#include <vector>

#include "epmoe/experts/experts.hpp"
#include "epmoe/runtime/modular_kernel.hpp"

/// How the experts stage is cut, so that its scratch memory stays within a budget whatever arrives.
namespace epmoe {

struct ChunkLimits {
  std::int64_t rows = 0;     ///< most rows per chunk
  std::int64_t entries = 0;  ///< most (row, expert) pairs per chunk; a single row may exceed it
};
/// Pure function of the shape and the config; unbounded when chunking is off or not supported.
ChunkLimits chunk_limits(const Experts& experts, const KernelConfig& config);

struct Chunk {
  std::int64_t first_row = 0, rows = 0;
};
/// Consecutive rows, greedily up to the limits. No rows, no chunks.
std::vector<Chunk> cut_chunks(const DispatchedRouting& routing, const ChunkLimits& limits);

}  // namespace epmoe
