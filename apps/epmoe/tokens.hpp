#pragma once
#include <cstdint>
#include <vector>

#include "epmoe/core/aligned_memory.hpp"
#include "epmoe/core/tensor_view.hpp"
#include "job.hpp"
#include "run_options.hpp"

namespace epmoe::cli {

/// Rows per rank: in order, the first (tokens mod ranks) ranks get one more, or as asked. ConfigError if `asked` does
/// not have a count for each rank, or has another sum.
std::vector<std::int64_t> split_tokens(std::int64_t tokens, int ranks, const std::vector<std::int64_t>& asked);

/// This rank's rows of the input.
struct Tokens {
  std::vector<std::int64_t> per_rank;
  std::int64_t total = 0;
  std::int64_t first = 0;  ///< index of this rank's first row in the whole input
  AlignedBuffer memory;
  ConstMatrixView x;  ///< [per_rank[rank], hidden]
};
/// Collective. Random, or this rank's rows of --input (rank 0 reads and checks the file's header).
Tokens load_tokens(Job& job, const RunOptions& options, std::int64_t hidden);

}  // namespace epmoe::cli
