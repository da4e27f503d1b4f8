#pragma once
#include <cstdint>
#include <memory>

#include "epmoe/experts/experts.hpp"

/// The oneDNN back end: blocks of rows through oneDNN's blocked matrix products, over the same packed weights as the
/// native kernels. f32, bf16 and int8 (W8A8).
namespace epmoe {

/// Asks oneDNN which implementations it would use; a refusal names them, or says what else is missing. Reproducible
/// sums are always refused: oneDNN promises no order of summation over K, and versions are known to change it with M.
Verdict supports_onednn(const ExpertsConfig& config);

/// How blocks of rows use the threads.
enum class BlockOrder : std::uint8_t {
  automatic,     ///< whichever of the two the rows of a chunk suggest
  one_by_one,    ///< one after another, all threads in each product
  side_by_side,  ///< one thread each
};

/// Throws ConfigError with the reason where supports_onednn() refuses.
std::unique_ptr<Experts> make_onednn(const ExpertsConfig& config, BlockOrder order = BlockOrder::automatic);

}  // namespace epmoe
