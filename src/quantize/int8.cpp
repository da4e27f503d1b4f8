#include "epmoe/quantize/int8.hpp"

#include <algorithm>
#include <limits>

#include "quantize/int8_values.hpp"

namespace epmoe {
namespace {

float quantize_dynamic(const float* x, std::int64_t n, float epsilon, std::int8_t* q) {
  const std::int32_t magnitude = int8_values::max_magnitude_bits(x, n);
  if (magnitude >= int8_values::kInfinityBits) {
    std::fill_n(q, n, std::int8_t{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float scale = int8_values::scale_of(magnitude, epsilon);
  int8_values::round_to_int8(x, n, scale, q);
  return scale;
}

}  // namespace

float quantize_int8_token(const float* x, std::int64_t n, std::int8_t* q) {
  return quantize_dynamic(x, n, int8_values::kTokenEpsilon, q);
}

float quantize_int8_channel(const float* w, std::int64_t n, std::int8_t* q) {
  return quantize_dynamic(w, n, int8_values::kChannelEpsilon, q);
}

void quantize_int8_static(const float* x, std::int64_t n, float scale, std::int8_t* q, bool* finite) {
  if (finite != nullptr) *finite = int8_values::max_magnitude_bits(x, n) < int8_values::kInfinityBits;
  int8_values::round_to_int8(x, n, scale, q);
}

}  // namespace epmoe
