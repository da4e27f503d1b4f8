#include "route/scores.hpp"

#include <cstddef>
#include <limits>

#include "core/math.hpp"

namespace epmoe::route {
namespace {

/// False for NaN too.
bool finite(float value) { return value - value == 0.0F; }

}  // namespace

void softmax(std::span<const float> logits, std::span<float> scores) {
  float highest = -std::numeric_limits<float>::infinity();
  for (const float logit : logits) highest = logit > highest ? logit : highest;
  for (std::size_t e = 0; e < logits.size(); ++e) scores[e] = exp_f32(logits[e] - highest);
  float sum = 0.0F;
  for (const float score : scores) sum += score;
  // A row that cannot be normalised has a NaN in its sum: Inf − Inf above, or a NaN logit.
  const bool usable = finite(sum);
  for (float& score : scores) score = usable ? score / sum : 0.0F;
}

void sigmoid(std::span<const float> logits, std::span<float> scores) {
  for (std::size_t e = 0; e < logits.size(); ++e) {
    const float score = sigmoid_f32(logits[e]);
    scores[e] = finite(score) ? score : 0.0F;
  }
}

}  // namespace epmoe::route
