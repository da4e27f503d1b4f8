#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "epmoe/quantize/int8.hpp"
#include "experts/expert_case.hpp"
#include "experts/kernels/kernel_set.hpp"
#include "experts/row_conversion.hpp"

/// Elementary functions and activations of the kernels: documented errors against f64, special values, equal bits.
namespace epmoe::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> grid(float from, float to, std::int64_t count) {
  std::vector<float> x(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    x[static_cast<std::size_t>(i)] =
        from + (to - from) * static_cast<float>(static_cast<double>(i) / static_cast<double>(count - 1));
  return x;
}

using Function = void (*)(const float*, std::int64_t, float*);
std::vector<float> evaluate(Function f, const std::vector<float>& x) {
  std::vector<float> y(x.size(), kNaN);
  f(x.data(), static_cast<std::int64_t>(x.size()), y.data());
  return y;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

TEST(Functions, ExpErrorIsBelowItsBound) {
  const auto x = grid(-87.33F, 88.72F, 300001);
  for (const std::string& isa : isas()) {
    const auto y = evaluate(kernels::find_kernel_set(isa.c_str())->functions->exp, x);
    double worst = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp(static_cast<double>(x[i]));
      const double ulp = std::ldexp(1.0, std::ilogb(want) - 23);
      worst = std::max(worst, std::abs(static_cast<double>(y[i]) - want) / ulp);
    }
    EXPECT_LE(worst, 1.1) << isa;
    EXPECT_GT(worst, 0.3) << isa << ": not f32 arithmetic?";
  }
}

TEST(Functions, ExpSpecialValues) {
  const std::vector<float> x = {kInf, -kInf, kNaN, 0.0F, -0.0F, 89.0F, 1e30F, -104.0F, -1e30F, -90.0F, -103.0F};
  for (const std::string& isa : isas()) {
    const auto y = evaluate(kernels::find_kernel_set(isa.c_str())->functions->exp, x);
    EXPECT_EQ(y[0], kInf);
    EXPECT_EQ(y[1], 0.0F);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], 1.0F);
    EXPECT_EQ(y[4], 1.0F);
    EXPECT_EQ(y[5], kInf);
    EXPECT_EQ(y[6], kInf);
    EXPECT_EQ(y[7], 0.0F);
    EXPECT_EQ(y[8], 0.0F);
    EXPECT_NEAR(y[9] / 8.1940126e-40F, 1.0F, 1e-5F) << isa;  // subnormal results
    EXPECT_NEAR(y[10], 1.85e-45F, 1.5e-45F) << isa;
  }
}

TEST(Functions, ErfErrorIsBelowItsBound) {
  const auto x = grid(-6.0F, 6.0F, 300001);
  for (const std::string& isa : isas()) {
    const auto* f = kernels::find_kernel_set(isa.c_str())->functions;
    const auto y = evaluate(f->erf, x);
    double worst = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(y[i]) - std::erf(static_cast<double>(x[i]))));
    EXPECT_LE(worst, 4e-7) << isa;
    const auto special = evaluate(f->erf, {kInf, -kInf, kNaN, 20.0F, -20.0F});
    EXPECT_EQ(special[0], 1.0F);
    EXPECT_EQ(special[1], -1.0F);
    EXPECT_TRUE(std::isnan(special[2]));
    EXPECT_EQ(special[3], 1.0F);
    EXPECT_EQ(special[4], -1.0F);
  }
}

TEST(Functions, AllIsasGiveTheSameBits) {
  auto x = grid(-110.0F, 95.0F, 100003);
  const auto near = grid(-7.0F, 7.0F, 50000);
  x.insert(x.end(), near.begin(), near.end());
  const auto all = isas();
  const auto* first = kernels::find_kernel_set(all.front().c_str())->functions;
  for (const std::string& isa : all) {
    const auto* f = kernels::find_kernel_set(isa.c_str())->functions;
    EXPECT_TRUE(same_bits(evaluate(f->exp, x), evaluate(first->exp, x))) << isa;
    EXPECT_TRUE(same_bits(evaluate(f->erf, x), evaluate(first->erf, x))) << isa;
  }
}

TEST(Functions, Bf16RoundingIsThatOfTheCore) {
  std::vector<float> x;
  for (std::uint64_t i = 0; i < 70003; ++i)
    x.push_back(
        std::bit_cast<float>(static_cast<std::uint32_t>(random_bits(1, 2, i))));  // NaN, Inf and subnormals among them
  for (const float v : {kInf, -kInf, kNaN, 3.4e38F, std::bit_cast<float>(0x7f800001U), 1.00390625F, 1.01171875F})
    x.push_back(v);
  for (const std::string& isa : isas()) {
    std::vector<std::uint16_t> bits(x.size());
    kernels::find_kernel_set(isa.c_str())
        ->functions->round_bf16(x.data(), static_cast<std::int64_t>(x.size()), bits.data());
    std::int64_t different = 0;
    for (std::size_t i = 0; i < x.size(); ++i) different += bits[i] != to_bf16(x[i]).bits;
    EXPECT_EQ(different, 0) << isa;
  }
}

TEST(Functions, Int8RoundingIsThatOfTheQuantiser) {
  for (const std::int64_t n : {1LL, 3LL, 15LL, 16LL, 17LL, 64LL, 1000LL})
    for (const float scale : {1e-20F, 1.0F, 3e30F}) {
      std::vector<float> x;
      for (std::int64_t i = 0; i < n; ++i) x.push_back(scale * random_normal(5, 1, static_cast<std::uint64_t>(i)));
      std::vector<std::int8_t> q(x.size());
      const float s = quantize_int8_token(x.data(), n, q.data());
      std::vector<float> special = x;  // values far outside a given scale, and those that are no numbers
      special.back() = kInf;
      special.front() = n % 2 == 0 ? kNaN : -kInf;
      std::vector<std::int8_t> special_q(x.size());
      quantize_int8_static(special.data(), n, 0.01F * scale, special_q.data(), nullptr);
      for (const std::string& isa : isas())
        for (const std::uint8_t flip : {std::uint8_t{0}, std::uint8_t{0x80}}) {
          const auto& f = *kernels::find_kernel_set(isa.c_str())->functions;
          const auto flipped = [flip](std::vector<std::int8_t> values) {
            for (std::int8_t& v : values) v = static_cast<std::int8_t>(static_cast<std::uint8_t>(v) ^ flip);
            return values;
          };
          const float most = std::bit_cast<float>(f.max_magnitude(x.data(), n));
          EXPECT_EQ(std::max(most, 1e-10F) / 127.0F, s) << isa << " n " << n;
          EXPECT_GE(f.max_magnitude(special.data(), n), std::bit_cast<std::int32_t>(kInf)) << isa << " n " << n;
          std::vector<std::int8_t> out(x.size() + 1, 77);  // one more, which must stay
          auto* bytes = reinterpret_cast<std::uint8_t*>(out.data());
          f.round_int8(x.data(), n, s, flip, bytes);
          EXPECT_EQ(out.back(), 77);
          EXPECT_EQ(std::vector<std::int8_t>(out.begin(), out.end() - 1), flipped(q)) << isa << " n " << n;
          f.round_int8(special.data(), n, 0.01F * scale, flip, bytes);
          EXPECT_EQ(std::vector<std::int8_t>(out.begin(), out.end() - 1), flipped(special_q)) << isa << " n " << n;
        }
    }
}

double wanted(kernels::ActivationKind kind, double g, double u) {
  switch (kind) {
    case kernels::ActivationKind::silu: return g / (1.0 + std::exp(-g)) * u;
    case kernels::ActivationKind::gelu: return 0.5 * g * (1.0 + std::erf(g / std::sqrt(2.0))) * u;
    case kernels::ActivationKind::gelu_tanh:
      return 0.5 * g * (1.0 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g))) * u;
    case kernels::ActivationKind::relu2: return g > 0.0 ? g * g * u : 0.0;
    case kernels::ActivationKind::silu_clamped:
      return std::min(g, 7.0) / (1.0 + std::exp(-std::min(g, 7.0))) * std::clamp(u, -7.0, 7.0);
    case kernels::ActivationKind::silu_no_mul: return wanted(kernels::ActivationKind::silu, g, 1.0);
    case kernels::ActivationKind::gelu_no_mul: return wanted(kernels::ActivationKind::gelu, g, 1.0);
    case kernels::ActivationKind::gelu_tanh_no_mul: return wanted(kernels::ActivationKind::gelu_tanh, g, 1.0);
    case kernels::ActivationKind::relu2_no_mul: return wanted(kernels::ActivationKind::relu2, g, 1.0);
    case kernels::ActivationKind::swiglu_oai: break;
  }
  const double gate = std::min(g, 7.0), up = std::clamp(u, -7.0, 7.0);
  return (up + 1.0) * gate / (1.0 + std::exp(-1.702 * gate));
}

TEST(Functions, ActivationsMatchF64AndKeepNaN) {
  const auto gates = grid(-12.0F, 12.0F, 4096);
  for (const Activation activation : activations())
    for (const std::string& isa : isas()) {
      const kernels::ActivationKind kind = kind_of(activation);
      std::vector<float> up(gates.size()), out(gates.size());
      for (std::size_t i = 0; i < up.size(); ++i) up[i] = 8.5F * std::sin(static_cast<float>(i));
      kernels::PanelActivation p;
      p.kind = kind;
      p.gate = gates.data();
      if (is_gated(activation)) p.up = up.data();
      p.stride = 64;
      p.rows = 64;
      p.out = out.data();
      p.out_stride_bytes = 256;
      const auto* f = kernels::find_kernel_set(isa.c_str())->functions;
      f->activate(p);
      for (std::size_t i = 0; i < out.size(); ++i) {
        const double want = wanted(kind, static_cast<double>(gates[i]), static_cast<double>(up[i]));
        ASSERT_NEAR(static_cast<double>(out[i]), want, 1e-6 * std::abs(want) + 5e-6) << isa << " gate " << gates[i];
      }
      std::vector<float> special(64, 1.0F), ones(64, 1.0F), y(64);
      special[0] = kNaN;
      special[1] = kInf;
      special[2] = -200.0F;
      p.gate = special.data();
      if (is_gated(activation)) p.up = ones.data();
      p.rows = 1;
      p.out = y.data();
      f->activate(p);
      EXPECT_TRUE(std::isnan(y[0])) << isa;
      EXPECT_GT(y[1], 6.9F) << isa;
      EXPECT_EQ(y[2], 0.0F) << isa;
      EXPECT_GT(y[3], 0.5F) << isa << ": a NaN must not spread";
      if (!is_gated(activation)) continue;
      p.gate = ones.data();
      p.up = special.data();
      f->activate(p);
      EXPECT_TRUE(std::isnan(y[0])) << isa;
      EXPECT_GT(y[3], 0.5F) << isa;
    }
}

TEST(Functions, PartSumsAreExactForEveryLength) {
  std::vector<std::int8_t> values(4096 + 32, std::int8_t{-128});
  for (std::size_t i = 0; i < 2048; ++i) values[i] = static_cast<std::int8_t>((i * 37 + i / 7) % 256);
  for (std::int64_t i = 0; i < kernels::kernel_table().count; ++i) {
    const kernels::KernelSet& set = kernels::kernel_table().sets[i];
    if (kernels::find_kernel_set(set.name) == nullptr) continue;
    for (const std::int64_t part : {32, 64, 128, 4128})
      for (const std::int64_t n : {32, 96, 160, 2080, 4128}) {
        std::vector<std::int32_t> sums(static_cast<std::size_t>(ceil_div(n, part)), 7);
        set.functions->part_sums(values.data(), n, part, sums.data());
        for (std::size_t s = 0; s < sums.size(); ++s) {
          const auto begin = static_cast<std::int64_t>(s) * part;
          const auto first = values.begin() + begin;
          EXPECT_EQ(sums[s], std::accumulate(first, first + std::min(part, n - begin), 0))
              << set.name << " part " << part << " n " << n;
        }
      }
  }
}

}  // namespace
}  // namespace epmoe::test
