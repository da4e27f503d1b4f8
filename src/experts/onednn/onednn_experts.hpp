#pragma once
#include <memory>

#include "epmoe/experts/experts.hpp"

/// The oneDNN back end: blocks of rows through oneDNN's blocked matrix products, over the same packed weights as the
/// native kernels. f32, bf16 and int8 (W8A8).
namespace epmoe {

/// Asks oneDNN which implementations it would use; a refusal names them, or says what else is missing. Reproducible
/// sums are always refused: oneDNN promises no order of summation over K, and versions are known to change it with M.
Verdict supports_onednn(const ExpertsConfig& config);

/// Throws ConfigError with the reason where supports_onednn() refuses.
std::unique_ptr<Experts> make_onednn(const ExpertsConfig& config);

}  // namespace epmoe
