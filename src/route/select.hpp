#pragma once
#include <cstdint>
#include <span>

/// The k best of n scores. Local, no allocation.
namespace epmoe::route {

/// Writes the indices of the `best.size()` highest scores in descending order; the lowest index wins ties. Scores must
/// not be NaN (−Inf is fine) and best.size() <= scores.size().
void select_highest(std::span<const float> scores, std::span<std::int32_t> best);

}  // namespace epmoe::route
