#include "route/scores.hpp"

#include <cmath>
#include <cstddef>
#include <limits>

#include "core/math.hpp"

namespace epmoe::route {

void softmax(std::span<const float> logits, std::span<float> scores) {
  float highest = -std::numeric_limits<float>::infinity();
  for (const float logit : logits) highest = logit > highest ? logit : highest;
  for (std::size_t e = 0; e < logits.size(); ++e) scores[e] = exp_f32(logits[e] - highest);
  float sum = 0.0F;
  for (const float score : scores) sum += score;
  for (float& score : scores) score /= sum;  // Inf − Inf above or a NaN logit: the sum is NaN and all scores with it
}

void sigmoid(std::span<const float> logits, std::span<float> scores) {
  for (std::size_t e = 0; e < logits.size(); ++e) scores[e] = sigmoid_f32(logits[e]);
}

void zero_nans(std::span<float> scores) {
  for (float& score : scores) score = std::isnan(score) ? 0.0F : score;
}

}  // namespace epmoe::route
