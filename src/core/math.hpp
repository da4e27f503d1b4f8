#pragma once
#include <bit>
#include <cstdint>

/// Elementary functions of our own: the same bits on every ISA, compiler and vector width, which libm does not promise.
/// Branch-free, so that loops over them vectorise. Rely on -ffp-contract=off.
namespace epmoe {

/// e^x to within 1.5 ulp; 0 below the subnormals, +Inf above the range, NaN stays NaN.
inline float exp_f32(float x) {
  constexpr float kLowest = -104.0F;  // below, the result rounds to 0
  constexpr float kHighest = 89.0F;   // above, it is Inf
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;  // 9 bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer, kept in the low bits

  const float clamped = x < kLowest ? kLowest : (x > kHighest ? kHighest : x);
  const float shifted = clamped * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;  // |r| <= ln 2 / 2

  float p = 1.98412698e-4F;  // Taylor to r^7: the next term is below 6e-9
  p = p * r + 1.38888889e-3F;
  p = p * r + 8.33333333e-3F;
  p = p * r + 4.16666667e-2F;
  p = p * r + 1.66666667e-1F;
  p = p * r + 0.5F;
  p = (p * r) * r + r + 1.0F;

  // 2^n in two factors: n reaches beyond the exponents of normal numbers at both ends.
  const auto exponent = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) - 0x4b400000U);
  const std::int32_t half = exponent >> 1;
  const float scale1 = std::bit_cast<float>(static_cast<std::uint32_t>(half + 127) << 23U);
  const float scale2 = std::bit_cast<float>(static_cast<std::uint32_t>(exponent - half + 127) << 23U);
  return p * scale1 * scale2;
}

/// 1 / (1 + e^-x).
inline float sigmoid_f32(float x) {
  return 1.0F / (1.0F + exp_f32(-x));
}

}  // namespace epmoe
