#include "epmoe/core/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace epmoe {
namespace {

/// Rounds to a format with `mantissa` stored bits and smallest normal exponent `min_exponent`, in f64: every step is
/// exact but the rounding itself, and std::nearbyint rounds ties to even.
double round_reference(double x, int mantissa, int min_exponent, double overflow) {
  if (x == 0.0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), min_exponent);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, mantissa - exponent)), exponent - mantissa);
  return std::fabs(rounded) >= overflow ? std::copysign(std::numeric_limits<double>::infinity(), x) : rounded;
}

float from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

TEST(Dtype, EveryF16SurvivesTheRoundTrip) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const f16 half{static_cast<std::uint16_t>(i)};
    const float wide = to_float(half);
    const int exponent = static_cast<int>((i >> 10U) & 31U), mantissa = static_cast<int>(i & 1023U);
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(wide)) << i;
      EXPECT_EQ(to_f16(wide).bits, i | 0x200U);  // quiet, payload and sign kept
      continue;
    }
    double value = exponent == 31  ? std::numeric_limits<double>::infinity()
                   : exponent == 0 ? std::ldexp(mantissa, -24)
                                   : std::ldexp(1024 + mantissa, exponent - 25);
    if ((i & 0x8000U) != 0) value = -value;
    EXPECT_EQ(wide, value) << i;
    EXPECT_EQ(std::signbit(wide), (i & 0x8000U) != 0) << i;
    EXPECT_EQ(to_f16(wide), half) << i;
  }
}

TEST(Dtype, EveryBf16SurvivesTheRoundTrip) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const bf16 value{static_cast<std::uint16_t>(i)};
    const float wide = to_float(value);
    if (std::isnan(wide))
      EXPECT_EQ(to_bf16(wide).bits, i | 0x40U);
    else
      EXPECT_EQ(to_bf16(wide), value) << i;
  }
}

TEST(Dtype, RoundsToNearestEvenOverTheWholeRange) {
  for (std::uint64_t i = 0; i < (1ULL << 32U); i += 10007) {
    const float x = from_bits(static_cast<std::uint32_t>(i));
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(to_float(to_f16(x)))) << i;
      EXPECT_TRUE(std::isnan(to_float(to_bf16(x)))) << i;
      EXPECT_EQ(to_f16(x).bits & 0x200U, 0x200U) << i;
      EXPECT_EQ(to_bf16(x).bits & 0x40U, 0x40U) << i;
      continue;
    }
    EXPECT_EQ(static_cast<double>(to_float(to_f16(x))), round_reference(x, 10, -14, 65536.0)) << i;
    EXPECT_EQ(static_cast<double>(to_float(to_bf16(x))), round_reference(x, 7, -126, std::ldexp(1.0, 128))) << i;
  }
}

TEST(Dtype, TiesOverflowAndSubnormals) {
  EXPECT_EQ(to_bf16(from_bits(0x3f808000U)).bits, 0x3f80U);  // a tie goes to the even neighbour below
  EXPECT_EQ(to_bf16(from_bits(0x3f818000U)).bits, 0x3f82U);  // … and above
  EXPECT_EQ(to_bf16(from_bits(0x3f808001U)).bits, 0x3f81U);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80U);
  EXPECT_EQ(to_bf16(from_bits(0x00008000U)).bits, 0U);       // half of the smallest subnormal
  EXPECT_EQ(to_bf16(from_bits(0x7f800001U)).bits, 0x7fc0U);  // a NaN whose payload is cut off must not become Inf

  EXPECT_EQ(to_f16(1.0F + 0x1p-11F).bits, 0x3c00U);
  EXPECT_EQ(to_f16(1.0F + 0x3p-11F).bits, 0x3c02U);
  EXPECT_EQ(to_f16(65519.996F).bits, 0x7bffU);
  EXPECT_EQ(to_f16(65520.0F).bits, 0x7c00U);
  EXPECT_EQ(to_f16(-1e30F).bits, 0xfc00U);
  EXPECT_EQ(to_f16(0x1p-25F).bits, 0U);
  EXPECT_EQ(to_f16(0x1.000002p-25F).bits, 1U);
  EXPECT_EQ(to_f16(0x3p-25F).bits, 2U);
  EXPECT_EQ(to_f16(0x1.ffep-15F).bits, 0x0400U);  // rounds up into the normal numbers
  EXPECT_EQ(to_f16(-0.0F).bits, 0x8000U);
}

TEST(Dtype, NamesReadBack) {
  for (const DType dtype :
       {DType::f32, DType::f16, DType::bf16, DType::i8, DType::u8, DType::i32, DType::i64, DType::f8_e4m3})
    EXPECT_EQ(parse_dtype(name(dtype)), dtype);
  EXPECT_EQ(name(DType::bf16), "bf16");
  EXPECT_FALSE(parse_dtype("float32").has_value());
}

}  // namespace
}  // namespace epmoe
