#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

/// The loops of int8 quantisation, shared by whole rows and rows that are converted in pieces. All vectorise.
namespace epmoe::int8_values {

inline constexpr float kTokenEpsilon = 1e-10F;
inline constexpr float kChannelEpsilon = 1e-12F;
inline constexpr std::int32_t kInfinityBits = 0x7f800000;

/// Largest |x| as bits; kInfinityBits or more if some x is Inf or NaN. Integers order like the magnitudes they encode,
/// and their maximum needs no promise about NaN.
inline std::int32_t max_magnitude_bits(const float* x, std::int64_t n, std::int32_t start = 0) {
  std::int32_t most = start;
  for (std::int64_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff);
  return most;
}

inline float scale_of(std::int32_t magnitude_bits, float epsilon) {
  return std::max(std::bit_cast<float>(magnitude_bits), epsilon) / 127.0F;
}

/// q = clamp(nearest_even(x / scale), -127, 127); NaN gives 0. Clamping first changes nothing, as the bounds are
/// integers.
inline void round_to_int8(const float* x, std::int64_t n, float scale, std::int8_t* q) {
  constexpr float kRound = 0x1.8p23F;  // adding it leaves an integer, rounded to nearest even, in the low bits
  for (std::int64_t i = 0; i < n; ++i) {
    float v = x[i] / scale;
    v = v == v ? v : 0.0F;
    v = v > 127.0F ? 127.0F : v;
    v = v < -127.0F ? -127.0F : v;
    q[i] = static_cast<std::int8_t>(std::bit_cast<std::int32_t>(v + kRound) - std::bit_cast<std::int32_t>(kRound));
  }
}

}  // namespace epmoe::int8_values
