#pragma once
#include <span>

/// Logits → scores in [0, 1] or NaN, f32, the same bits on every ISA.
namespace epmoe::route {

/// Sums in ascending order. A NaN or +Inf logit, or only −Inf, makes every score of the row NaN.
void softmax(std::span<const float> logits, std::span<float> scores);
/// A NaN logit makes its own score NaN.
void sigmoid(std::span<const float> logits, std::span<float> scores);
/// NaN → 0.
void zero_nans(std::span<float> scores);

}  // namespace epmoe::route
