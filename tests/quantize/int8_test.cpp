#include "epmoe/quantize/int8.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "epmoe/core/random.hpp"

namespace epmoe {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::int64_t size(const std::vector<float>& x) {
  return static_cast<std::int64_t>(x.size());
}

std::int8_t reference(float x, float scale) {
  if (std::isnan(x)) return 0;
  const float q = std::nearbyint(x / scale);  // the default rounding mode is to nearest even
  return static_cast<std::int8_t>(std::clamp(q, -127.0F, 127.0F));
}

std::vector<float> normal_row(std::uint64_t seed, std::size_t n, float factor) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = factor * random_normal(seed, 0, i);
  return x;
}

TEST(Int8, TokenRowsFollowTheRule) {
  for (const std::size_t n : {1U, 2U, 7U, 64U, 100U, 1023U, 2880U})
    for (const float factor : {1e-30F, 1e-12F, 1e-3F, 1.0F, 1e4F, 1e37F}) {
      const auto x = normal_row(n, n, factor);
      std::vector<std::int8_t> q(n + 1, 99);
      const float scale = quantize_int8_token(x.data(), size(x), q.data());
      float amax = 0.0F;
      for (const float value : x) amax = std::max(amax, std::fabs(value));
      EXPECT_EQ(scale, std::max(amax, 1e-10F) / 127.0F);
      for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(q[i], reference(x[i], scale)) << x[i] << " / " << scale;
      EXPECT_EQ(q[n], 99);
    }
}

TEST(Int8, TiesGoToEven) {
  const std::vector<float> x = {127.0F, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -2.5F, 3.4999998F, 126.5F, -126.5F};
  const std::vector<std::int8_t> wanted = {127, 0, 2, 2, 0, -2, -2, 3, 126, -126};
  std::vector<std::int8_t> q(x.size());
  EXPECT_EQ(quantize_int8_token(x.data(), size(x), q.data()), 1.0F);
  EXPECT_EQ(q, wanted);
}

TEST(Int8, ZeroAndTinyRows) {
  std::vector<std::int8_t> q(3, 99);
  const std::vector<float> zero = {0.0F, -0.0F, 0.0F};
  EXPECT_EQ(quantize_int8_token(zero.data(), 3, q.data()), 1e-10F / 127.0F);
  EXPECT_EQ(q, (std::vector<std::int8_t>{0, 0, 0}));
  const std::vector<float> tiny = {1e-12F, 1e-45F, -5e-13F};
  EXPECT_EQ(quantize_int8_token(tiny.data(), 3, q.data()), 1e-10F / 127.0F);
  EXPECT_EQ(q, (std::vector<std::int8_t>{1, 0, -1}));
  EXPECT_EQ(quantize_int8_channel(tiny.data(), 3, q.data()), 1e-12F / 127.0F);
  EXPECT_EQ(q, (std::vector<std::int8_t>{127, 0, -64}));  // -63.5 to even
}

TEST(Int8, OneBadValueMarksTheRow) {
  for (const float bad : {kNaN, -kNaN, kInf, -kInf})
    for (const std::size_t at : {0U, 5U, 16U, 99U}) {
      auto x = normal_row(1, 100, 1.0F);
      x[at] = bad;
      std::vector<std::int8_t> q(100, 99);
      EXPECT_TRUE(std::isnan(quantize_int8_token(x.data(), 100, q.data())));
      EXPECT_EQ(q, std::vector<std::int8_t>(100, 0));
    }
}

TEST(Int8, StaticScaleSaturates) {
  const std::vector<float> x = {0.0F, 1.0F, 63.5F, 64.5F, 1e30F, -1e30F, 3e38F, -0.26F};
  std::vector<std::int8_t> q(x.size());
  bool finite = false;
  quantize_int8_static(x.data(), size(x), 0.5F, q.data(), &finite);
  EXPECT_EQ(q, (std::vector<std::int8_t>{0, 2, 127, 127, 127, -127, 127, -1}));
  EXPECT_TRUE(finite);
  const std::vector<float> bad = {1.0F, kNaN, kInf, -kInf};
  quantize_int8_static(bad.data(), size(bad), 0.5F, q.data(), &finite);
  EXPECT_EQ(std::vector<std::int8_t>(q.begin(), q.begin() + 4), (std::vector<std::int8_t>{2, 0, 127, -127}));
  EXPECT_FALSE(finite);
  quantize_int8_static(x.data(), size(x), 0.5F, q.data(), nullptr);
}

}  // namespace
}  // namespace epmoe
