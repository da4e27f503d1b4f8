#pragma once
#include <bit>
#include <cstdint>

/// Scalar conversions of the narrow float formats of the OCP specifications (OFP8 1.0: E4M3; MX 1.0: E2M1, E8M0).
/// Exact, branch-light, local, thread-safe. Rounding is to nearest, ties to even; what is too large saturates.
namespace epmoe {

/// E4M3 (the finite variant: no Inf, 0x7f and 0xff are NaN): bias 7, subnormals are m * 2^-9.
inline float from_e4m3(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80U) << 24U;
  const std::uint32_t magnitude = code & 0x7fU;
  if (magnitude == 0x7fU) return std::bit_cast<float>(sign | 0x7fc00000U);
  // 2^-6 * (1 + m / 8) - 2^-6 is the subnormal m * 2^-9, without touching an f32 subnormal.
  const auto subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>((magnitude << 20U) + 0x3c800000U) - 0x1p-6F);
  const std::uint32_t normal = (magnitude << 20U) + (120U << 23U);
  return std::bit_cast<float>(sign | (magnitude < 8U ? subnormal : normal));
}
inline std::uint8_t to_e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24U) & 0x80U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint8_t>(sign | 0x7fU);
  if (magnitude >= 0x43e00000U) return static_cast<std::uint8_t>(sign | 0x7eU);  // 448 and above
  std::uint32_t code;
  if (magnitude < 0x3c800000U)  // below 2^-6: the last place of 2^14 is 2^-9, so the addition rounds
    code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14F) - 0x46800000U;
  else
    code = ((magnitude + 0x7ffffU + ((magnitude >> 20U) & 1U)) >> 20U) - (120U << 3U);
  return static_cast<std::uint8_t>(sign | code);
}

/// E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign.
inline float from_e2m1(std::uint8_t code) {
  constexpr float kMagnitudes[8] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  const float magnitude = kMagnitudes[code & 7U];
  return (code & 8U) != 0U ? -magnitude : magnitude;
}
inline std::uint8_t to_e2m1(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const float m = std::bit_cast<float>(bits & 0x7fffffffU);
  const unsigned code = static_cast<unsigned>(m > 0.25F) + static_cast<unsigned>(m >= 0.75F) +
                        static_cast<unsigned>(m > 1.25F) + static_cast<unsigned>(m >= 1.75F) +
                        static_cast<unsigned>(m > 2.5F) + static_cast<unsigned>(m >= 3.5F) +
                        static_cast<unsigned>(m > 5.0F);
  return static_cast<std::uint8_t>(((bits >> 28U) & 8U) | code);
}

/// E8M0: 2^(code - 127); 255 is NaN.
inline float from_e8m0(std::uint8_t code) {
  if (code == 255U) return std::bit_cast<float>(0x7fc00000U);
  return std::bit_cast<float>(code == 0U ? 0x00400000U : static_cast<std::uint32_t>(code) << 23U);
}

}  // namespace epmoe
