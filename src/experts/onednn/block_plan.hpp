#pragma once
#include <cstdint>
#include <vector>

#include "epmoe/core/stage_data.hpp"

/// How the rows of a chunk are cut into matrix products, and where their scratch rows lie. Pure arithmetic.
namespace epmoe::onednn {

/// A block's rows stay in the caches of a core between the two products.
inline constexpr std::int64_t kMaxBlockRows = 256;

/// oneDNN fixes M when a primitive is made (a run-time M falls back to slow code), so M is rounded up to a bucket:
/// every number up to 8, then steps of an eighth of the next power of two: 10, 12, 14, 16, 20, … 64, 80, … 256.
/// 28 buckets in all; at most a quarter of the rows computed are padding.
std::int64_t bucket_rows(std::int64_t rows);
/// All buckets, ascending.
std::vector<std::int64_t> all_buckets();

/// Some of one expert's entries: `rows` of them from `begin` on, in the order of ExpertIndex.
struct Block {
  std::int64_t expert = 0;
  std::int64_t begin = 0, rows = 0;
  std::int64_t bucket = 0;     ///< rows computed
  std::int64_t first_row = 0;  ///< its place among the scratch rows if every block had its own
};

struct BlockPlan {
  std::vector<Block> blocks;  ///< most rows first, so that handing them out in order balances the workers
  std::int64_t max_bucket = 0;
  std::int64_t scratch_rows = 0;
};
/// No block for an expert without entries.
BlockPlan plan_blocks(const ExpertIndex& index);

/// Scratch rows that any chunk of `entries` entries can need.
std::int64_t max_scratch_rows(std::int64_t entries);

/// Whether to run blocks side by side with one thread each, rather than one after another with all threads in each
/// product. Side by side wins (no barrier per product) unless too few blocks leave workers idle.
bool side_by_side(const BlockPlan& plan, int workers);

}  // namespace epmoe::onednn
