#pragma once
#include <span>

/// Logits → scores in [0, 1], f32, the same bits on every ISA. A score that comes out non-finite is 0.
namespace epmoe::route {

/// Sums in ascending order. A NaN or +Inf logit, or only −Inf, makes every score of the row 0.
void softmax(std::span<const float> logits, std::span<float> scores);
/// A NaN logit makes its own score 0.
void sigmoid(std::span<const float> logits, std::span<float> scores);

}  // namespace epmoe::route
