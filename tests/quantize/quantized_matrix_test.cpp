#include "epmoe/quantize/quantized_matrix.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

/// The rules of the narrow weight formats, on blocks whose scales, zero points and codes were worked out by hand.
namespace epmoe {
namespace {

using Codes = std::vector<std::uint16_t>;

QuantizedMatrix quantize(const char* format, std::vector<float> w, std::int64_t rows = 1) {
  const std::int64_t cols = static_cast<std::int64_t>(w.size()) / rows;
  return quantize_matrix(*parse_weight_format(format), const_matrix_view(w.data(), rows, cols));
}

TEST(QuantizedMatrix, Int4ReachesBothEndsOfItsRange) {
  auto q = quantize("int4_g32", {7.0F, -4.0F, 0.5F, 1.5F, -0.5F, 0.0F});  // 7 / 7 > 4 / 8; ties go to even
  EXPECT_EQ(q.scales, std::vector<float>{1.0F});
  EXPECT_EQ(q.codes, (Codes{15, 4, 8, 10, 8, 8}));
  q = quantize("int4_g32", {7.0F, -16.0F, 3.0F});  // the negative end asks for more
  EXPECT_EQ(q.scales, std::vector<float>{2.0F});
  EXPECT_EQ(q.codes, (Codes{12, 0, 10}));  // 3.5 and 1.5 to even
  q = quantize("int4_g32", {0.0F, 0.0F});
  EXPECT_EQ(q.scales, std::vector<float>{0.0F});
  EXPECT_EQ(q.codes, (Codes{8, 8}));
}

TEST(QuantizedMatrix, Int4ZeroPointsHoldTheRangeAndZero) {
  auto q = quantize("int4_g32_zp", {-3.0F, 12.0F, 0.0F, 4.4F});
  EXPECT_EQ(q.scales, std::vector<float>{1.0F});
  EXPECT_EQ(q.zero_points, std::vector<std::uint8_t>{3});
  EXPECT_EQ(q.codes, (Codes{0, 15, 3, 7}));
  q = quantize("int4_g32_zp", {15.0F, 30.0F});  // of one sign: the range is widened to 0
  EXPECT_EQ(q.scales, std::vector<float>{2.0F});
  EXPECT_EQ(q.zero_points, std::vector<std::uint8_t>{0});
  EXPECT_EQ(q.codes, (Codes{8, 15}));  // 7.5 to even
}

TEST(QuantizedMatrix, Fp8ScalesPutTheLargestMagnitudeAt448) {
  auto q = quantize("fp8_channel", {896.0F, -2.0F, 0.0F, 448.0F, 1.0F, -448.0F}, 2);
  EXPECT_EQ(q.scales, (std::vector<float>{2.0F, 1.0F}));
  EXPECT_EQ(q.codes, (Codes{0x7e, 0xb8, 0x00, 0x7e, 0x38, 0xfe}));
  q = quantize("fp8_tensor", {896.0F, -2.0F, 0.0F, 448.0F, 1.0F, -448.0F}, 2);
  EXPECT_EQ(q.scales, std::vector<float>{2.0F});
  EXPECT_EQ(q.codes, (Codes{0x7e, 0xb8, 0x00, 0x76, 0x30, 0xf6}));
  EXPECT_EQ(quantize("fp8_tensor", {0.0F}).scales, std::vector<float>{1e-10F / 448.0F});
}

TEST(QuantizedMatrix, Mxfp4ScalesArePowersOfTwoWithTheMagnitudeRoundedFirst) {
  auto q = quantize("mxfp4", {6.0F, -3.0F, 0.5F, 1.25F});
  EXPECT_EQ(q.scales, std::vector<float>{1.0F});
  EXPECT_EQ(q.codes, (Codes{7, 13, 1, 2}));
  q = quantize("mxfp4", {7.0F, 1.0F});  // 7 rounds to 8, which asks for twice the scale
  EXPECT_EQ(q.scales, std::vector<float>{2.0F});
  EXPECT_EQ(q.codes, (Codes{6, 1}));                                      // 3.5 to even
  EXPECT_EQ(quantize("mxfp4", {6.9F}).scales, std::vector<float>{1.0F});  // rounds to 6
}

TEST(QuantizedMatrix, BlocksAreShorterAtTheEndsAndKeepTheirNaN) {
  std::vector<float> w(130, 1.0F);
  w[129] = std::numeric_limits<float>::quiet_NaN();
  const auto q = quantize("fp8_block", w);
  ASSERT_EQ(q.scales.size(), 2U);
  EXPECT_EQ(q.scales[0], 1.0F / 448.0F);
  EXPECT_TRUE(std::isnan(q.scales[1]));
  std::vector<float> back(130);
  dequantize_row(q, 0, back.data());
  EXPECT_EQ(back[127], 1.0F);
  EXPECT_TRUE(std::isnan(back[128]));
}

}  // namespace
}  // namespace epmoe
