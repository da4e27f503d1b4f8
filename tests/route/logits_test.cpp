#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/math.hpp"
#include "epmoe/core/error.hpp"
#include "route/routed.hpp"

namespace epmoe::test {
namespace {

std::vector<float> logits_of(ConstMatrixView x, ConstMatrixView weight, int threads = 2, bool in_f32 = false) {
  const TestContext context(threads);
  std::vector<float> logits(static_cast<std::size_t>(x.rows * weight.rows), -9.0F);
  router_logits(x, weight, {logits.data(), x.rows, weight.rows, weight.rows}, context, in_f32);
  return logits;
}

std::vector<bf16> to_bf16s(const std::vector<float>& values) {
  std::vector<bf16> out(values.size());
  std::transform(values.begin(), values.end(), out.begin(), [](float v) { return to_bf16(v); });
  return out;
}

TEST(RouterLogits, MatchF64ForAnyHidden) {
  for (const std::int64_t hidden : {1, 7, 15, 16, 17, 96, 100, 2048, 2880})
    for (const std::int64_t experts : {1, 8, 33, 60}) {
      const std::int64_t tokens = 11;
      const auto x = random_matrix(tokens, hidden, 1);
      const auto w = random_matrix(experts, hidden, 2, 0.1F);
      const auto got =
          logits_of(const_matrix_view(x.data(), tokens, hidden), const_matrix_view(w.data(), experts, hidden));
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t e = 0; e < experts; ++e) {
          double want = 0.0, size = 0.0;
          for (std::int64_t h = 0; h < hidden; ++h) {
            const double product = static_cast<double>(x[static_cast<std::size_t>(t * hidden + h)]) *
                                   static_cast<double>(w[static_cast<std::size_t>(e * hidden + h)]);
            want += product;
            size += std::abs(product);
          }
          ASSERT_NEAR(got[static_cast<std::size_t>(t * experts + e)], want, 2e-6 * size + 1e-12)
              << "hidden " << hidden << " token " << t << " expert " << e;
        }
    }
}

TEST(RouterLogits, TheSameBitsForAnyTokensThreadsAndStride) {
  constexpr std::int64_t kHidden = 176, kExperts = 60, kTokens = 37;
  const auto x = random_matrix(kTokens, kHidden, 1);
  const auto w = random_matrix(kExperts, kHidden, 2);
  const auto weight = const_matrix_view(w.data(), kExperts, kHidden);
  const auto all = logits_of(const_matrix_view(x.data(), kTokens, kHidden), weight, 1);
  EXPECT_EQ(logits_of(const_matrix_view(x.data(), kTokens, kHidden), weight, 3), all);
  std::vector<float> wide(kTokens * 200, std::nanf(""));
  for (std::int64_t t = 0; t < kTokens; ++t) std::copy_n(x.data() + t * kHidden, kHidden, wide.data() + t * 200);
  EXPECT_EQ(logits_of(const_matrix_view(wide.data(), kTokens, kHidden, 200), weight), all);
  for (const std::int64_t t : {0, 9, 36}) {
    const auto one = logits_of(const_matrix_view(x.data() + t * kHidden, 1, kHidden), weight);
    EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + t * kExperts)) << "token " << t;
  }
}

TEST(RouterLogits, Bf16WeightsRoundXUnlessF32IsAskedFor) {
  constexpr std::int64_t kHidden = 96, kExperts = 8, kTokens = 5;
  const auto x = random_matrix(kTokens, kHidden, 1);
  const auto w = to_bf16s(random_matrix(kExperts, kHidden, 2));
  const auto x16 = to_bf16s(x);
  std::vector<float> w32(w.size());
  std::transform(w.begin(), w.end(), w32.begin(), [](bf16 v) { return to_float(v); });
  const auto x_view = const_matrix_view(x.data(), kTokens, kHidden);
  const auto x16_view = const_matrix_view(x16.data(), kTokens, kHidden);
  const auto w_view = const_matrix_view(w.data(), kExperts, kHidden);
  const auto w32_view = const_matrix_view(w32.data(), kExperts, kHidden);
  EXPECT_EQ(logits_of(x_view, w_view), logits_of(x16_view, w_view));
  EXPECT_EQ(logits_of(x_view, w_view, 2, true), logits_of(x_view, w32_view));
  EXPECT_NE(logits_of(x_view, w_view), logits_of(x_view, w32_view));
}

TEST(RouterLogits, UnalignedWeightsAreRead) {  // as a memory map of a third party's checkpoint may give them
  constexpr std::int64_t kHidden = 33, kExperts = 3;
  const auto x = random_matrix(2, kHidden, 1);
  const auto w = random_matrix(kExperts, kHidden, 2);
  std::vector<char> bytes(w.size() * sizeof(float) + 1);
  std::memcpy(bytes.data() + 1, w.data(), w.size() * sizeof(float));
  ConstMatrixView unaligned = const_matrix_view(w.data(), kExperts, kHidden);
  unaligned.data = bytes.data() + 1;
  const auto x_view = const_matrix_view(x.data(), 2, kHidden);
  EXPECT_EQ(logits_of(x_view, unaligned), logits_of(x_view, const_matrix_view(w.data(), kExperts, kHidden)));
}

TEST(RouterLogits, ZeroTokensAndWrongShapes) {
  const TestContext context;
  const std::vector<float> x(8), w(16);
  std::vector<float> logits(4);
  const auto weight = const_matrix_view(w.data(), 2, 8);
  EXPECT_NO_THROW(router_logits(const_matrix_view<float>(nullptr, 0, 8), weight, {nullptr, 0, 2, 2}, context));
  EXPECT_THROW(router_logits(const_matrix_view(x.data(), 1, 7), weight, {logits.data(), 1, 2, 2}, context), InputError);
  EXPECT_THROW(router_logits(const_matrix_view(x.data(), 1, 8), weight, {logits.data(), 1, 3, 3}, context), InputError);
  EXPECT_THROW(router_logits(const_matrix_view(x.data(), 1, 8), weight, {logits.data(), 2, 2, 2}, context), InputError);
}

TEST(Exponential, IsWithinTwoUlpEverywhere) {
  for (double v = -103.0; v < 88.7; v += 0.000917) {
    const auto x = static_cast<float>(v);
    const double want = std::exp(static_cast<double>(x));
    EXPECT_NEAR(exp_f32(x), want, 2.4e-7 * want + 1.5e-45) << x;
  }
  EXPECT_EQ(exp_f32(0.0F), 1.0F);
  EXPECT_EQ(exp_f32(-HUGE_VALF), 0.0F);
  EXPECT_EQ(exp_f32(HUGE_VALF), HUGE_VALF);
  EXPECT_TRUE(std::isnan(exp_f32(std::nanf(""))));
}

}  // namespace
}  // namespace epmoe::test
