#include <gtest/gtest.h>

#include <cmath>

#include "epmoe/core/error.hpp"
#include "epmoe/quantize/int8.hpp"
#include "experts/expert_case.hpp"

/// The reference against numbers worked out here by other means: it judges all else, so nothing else may judge it.
namespace epmoe::test {
namespace {

/// One hidden value, one intermediate value: y = down * act(gate x + bg, up x + bu) + bd.
struct Scalar {
  float gate = 2.0F, up = 3.0F, down = 0.5F, gate_bias = 0.25F, up_bias = -1.0F, down_bias = 4.0F;
  [[nodiscard]] ExpertWeights weights() const {
    const auto view = [](const float& v) { return const_matrix_view(&v, 1, 1); };
    return {view(gate), view(up), view(down), view(gate_bias), view(up_bias), view(down_bias)};
  }
};

ReferenceConfig scalar_config(Activation activation, bool alike = false) {
  ReferenceConfig config;
  config.shape.hidden = config.shape.intermediate = config.shape.top_k = 1;
  config.shape.activation = activation;
  config.quantise_alike = alike;
  return config;
}

double reference_of(const ReferenceConfig& config, float x, float weight, const Scalar& expert) {
  OwnedRouting routing(1, 1);
  routing.ids()(0, 0) = 0;
  routing.weights()(0, 0) = weight;
  return reference_moe(config, const_matrix_view(&x, 1, 1), routing.view(),
                       [&](std::int32_t) { return expert.weights(); })[0];
}

TEST(Reference, OneValueByHand) {
  const Scalar e;
  const float x = 1.5F;
  const double g = 3.25, u = 3.5;  // 2 x + 0.25, 3 x - 1
  EXPECT_NEAR(reference_of(scalar_config(Activation::silu), x, 1.0F, e), 0.5 * (g / (1 + std::exp(-g))) * u + 4, 1e-12);
  EXPECT_NEAR(reference_of(scalar_config(Activation::silu), x, -2.0F, e), -2 * (0.5 * (g / (1 + std::exp(-g))) * u + 4),
              1e-12);
  EXPECT_NEAR(reference_of(scalar_config(Activation::gelu), x, 1.0F, e),
              0.5 * (g * 0.5 * (1 + std::erf(g / std::sqrt(2)))) * u + 4, 1e-12);
  EXPECT_NEAR(reference_of(scalar_config(Activation::swiglu_oai), x, 1.0F, e),
              0.5 * (g / (1 + std::exp(-1.702 * g))) * (u + 1) + 4, 1e-12);
  // Beyond the limits: gate 40.25 counts as 7, up 59 as 7; at x = -20 up -61 counts as -7 and gate is not limited
  // below.
  EXPECT_NEAR(reference_of(scalar_config(Activation::swiglu_oai), 20.0F, 1.0F, e),
              0.5 * (7 / (1 + std::exp(-1.702 * 7))) * 8 + 4, 1e-12);
  const double low = -39.75;
  EXPECT_NEAR(reference_of(scalar_config(Activation::swiglu_oai), -20.0F, 1.0F, e),
              0.5 * (low / (1 + std::exp(-1.702 * low))) * -6 + 4, 1e-12);
}

TEST(Reference, WithoutUpByHand) {
  const Scalar e;
  const auto view = [](const float& v) { return const_matrix_view(&v, 1, 1); };
  const float x = 1.5F;
  const double g = 3.25;  // 2 x + 0.25
  OwnedRouting routing(1, 1);
  routing.ids()(0, 0) = 0;
  routing.weights()(0, 0) = 1.0F;
  const auto of = [&](Activation activation, const ExpertWeights& weights) {
    return reference_moe(scalar_config(activation), view(x), routing.view(), [&](std::int32_t) { return weights; })[0];
  };
  const ExpertWeights alone{view(e.gate), {}, view(e.down), view(e.gate_bias), {}, view(e.down_bias)};
  EXPECT_NEAR(of(Activation::silu_no_mul, alone), 0.5 * (g / (1 + std::exp(-g))) + 4, 1e-12);
  EXPECT_NEAR(of(Activation::gelu_no_mul, alone), 0.5 * (g * 0.5 * (1 + std::erf(g / std::sqrt(2)))) + 4, 1e-12);
  EXPECT_NEAR(of(Activation::gelu_tanh_no_mul, alone),
              0.5 * (g * 0.5 * (1 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)))) + 4, 1e-12);
  EXPECT_NEAR(of(Activation::relu2_no_mul, alone), 0.5 * g * g + 4, 1e-12);
  EXPECT_THROW(of(Activation::silu, alone), InputError);
  EXPECT_THROW(of(Activation::silu_no_mul, e.weights()), InputError);
}

TEST(Reference, SumsOverKAndIgnoresNoExpert) {
  const float x[2] = {1.0F, -1.0F};
  const auto expert = [](float down) {
    Scalar e;
    e.down = down;
    return e;
  };
  const Scalar experts[3] = {expert(1.0F), expert(10.0F), expert(100.0F)};
  OwnedRouting routing(2, 3);
  const std::int32_t ids[2][3] = {{2, 0, 2}, {-1, -1, -1}};  // a duplicate counts twice
  for (std::int64_t t = 0; t < 2; ++t)
    for (std::int64_t k = 0; k < 3; ++k) {
      routing.ids()(t, k) = ids[t][k];
      routing.weights()(t, k) = t == 1 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(k + 1);
    }
  const auto y = reference_moe(scalar_config(Activation::silu), const_matrix_view(x, 2, 1), routing.view(),
                               [&](std::int32_t id) { return experts[id].weights(); });
  const double a = 2.25 / (1 + std::exp(-2.25)) * 2.0;
  EXPECT_NEAR(y[0], (1 + 3) * (100 * a + 4) + 2 * (a + 4), 1e-10);
  EXPECT_EQ(y[1], 0.0);
}

TEST(Reference, RouterWeightOnInputScalesTheRowOnly) {
  const Scalar e;
  auto config = scalar_config(Activation::silu);
  config.shape.router_weight_on_input = true;
  EXPECT_NEAR(reference_of(config, 3.0F, 0.5F, e), reference_of(scalar_config(Activation::silu), 1.5F, 1.0F, e), 1e-12);
}

TEST(Reference, RoundsAlikeOnlyWhenAsked) {
  const float x = 1.0F + 0x1p-8F;  // between bf16 values 1 and 1.0078125; ties to even: 1
  Scalar e;
  e.gate = e.up = 1.0F + 3 * 0x1p-8F;  // ties to even: 1.015625
  e.gate_bias = e.up_bias = e.down_bias = 0.0F;
  e.down = 1.0F;
  auto config = scalar_config(Activation::silu, true);
  config.quant = QuantConfig::for_compute(ComputeType::bf16);
  config.dispatch = DispatchType::f32;
  const double g = 1.015625;
  const double activation = static_cast<double>(to_float(to_bf16(static_cast<float>(g / (1 + std::exp(-g)) * g))));
  EXPECT_EQ(reference_of(config, x, 1.0F, e), activation);
  config.quantise_alike = false;
  const double exact = (1 + 0x1p-8) * (1 + 3 * 0x1p-8);
  EXPECT_NEAR(reference_of(config, x, 1.0F, e), exact / (1 + std::exp(-exact)) * exact, 1e-12);
  config.quantise_alike = true;  // f32 compute behind a bf16 wire: only the row is rounded
  config.quant = QuantConfig::for_compute(ComputeType::f32);
  config.dispatch = DispatchType::bf16;
  const double mixed = 1 + 3 * 0x1p-8;
  EXPECT_NEAR(reference_of(config, x, 1.0F, e), mixed / (1 + std::exp(-mixed)) * mixed, 1e-7);
}

TEST(Reference, Int8MatchesIntegerArithmeticDoneHere) {
  const Shape shape{5, 3};
  const RandomExpert expert(11, shape, DType::f32, false);
  const auto values = random_rows(1, 5);
  ReferenceConfig config;
  config.shape.hidden = 5;
  config.shape.intermediate = 3;
  config.shape.top_k = 1;
  config.quant = QuantConfig::for_compute(ComputeType::int8);
  OwnedRouting routing(1, 1);
  routing.ids()(0, 0) = 0;
  routing.weights()(0, 0) = 1.0F;

  const auto matvec = [](ConstMatrixView w, const std::int8_t* q, float scale) {
    std::vector<double> out;
    std::vector<float> row(static_cast<std::size_t>(w.cols));
    std::vector<std::int8_t> wq(row.size());
    for (std::int64_t n = 0; n < w.rows; ++n) {
      read_row(w, n, row.data());
      const float channel = quantize_int8_channel(row.data(), w.cols, wq.data());
      std::int64_t sum = 0;
      for (std::size_t k = 0; k < wq.size(); ++k) sum += wq[k] * q[k];
      out.push_back(static_cast<double>(sum) * static_cast<double>(channel) * static_cast<double>(scale));
    }
    return out;
  };
  std::int8_t q[5], aq[3];
  const float scale = quantize_int8_token(values.data(), 5, q);
  const auto gate = matvec(expert.gate.view(), q, scale), up = matvec(expert.up.view(), q, scale);
  float activation[3];
  for (std::size_t i = 0; i < 3; ++i) activation[i] = static_cast<float>(gate[i] / (1 + std::exp(-gate[i])) * up[i]);
  const float second = quantize_int8_token(activation, 3, aq);
  const auto wanted = matvec(expert.down.view(), aq, second);
  for (const DispatchType dispatch : {DispatchType::f32, DispatchType::int8}) {
    config.dispatch = dispatch;
    const auto y = reference_moe(config, const_matrix_view(values.data(), 1, 5), routing.view(),
                                 [&](std::int32_t) { return expert.weights(); });
    for (std::size_t c = 0; c < 5; ++c)
      EXPECT_NEAR(y[c], wanted[c], 1e-6 * std::abs(wanted[c]) + 1e-9) << name(dispatch);
  }
}

TEST(Reference, SharedExpertWithItsGate) {
  const Scalar e;
  const std::vector<float> x = random_rows(70, 1);
  const float direction = 0.75F;
  const auto gate = const_matrix_view(&direction, 1, 1);
  const auto config = scalar_config(Activation::silu);
  const auto plain = reference_shared(config, const_matrix_view(x.data(), 70, 1), e.weights(), nullptr);
  const auto gated = reference_shared(config, const_matrix_view(x.data(), 70, 1), e.weights(), &gate);
  for (std::size_t t = 0; t < x.size(); ++t) {
    EXPECT_NEAR(plain[t], reference_of(config, x[t], 1.0F, e), 1e-12);
    EXPECT_NEAR(gated[t], plain[t] / (1 + std::exp(-0.75 * static_cast<double>(x[t]))), 1e-12);
  }
}

TEST(Reference, RelativeErrorFindsTheWorstRow) {
  std::vector<float> found = {3, 4, 0, 0, 1, 0};
  const std::vector<double> wanted = {3, 4, 0, 0, 1, 0};
  const auto view = const_matrix_view(found.data(), 3, 2);
  EXPECT_EQ(relative_error(view, wanted).total, 0.0);
  found[1] = 4.5F;
  auto error = relative_error(view, wanted);
  EXPECT_NEAR(error.total, 0.5 / std::sqrt(26.0), 1e-12);
  EXPECT_NEAR(error.worst_row, 0.1, 1e-12);
  EXPECT_EQ(error.worst_row_index, 0);
  found[2] = 1e-9F;  // a value where an exact zero is due
  error = relative_error(view, wanted);
  EXPECT_EQ(error.worst_row_index, 1);
  EXPECT_TRUE(std::isinf(error.worst_row));
  found[2] = 0.0F;
  found[4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isinf(relative_error(view, wanted).total));
  std::vector<double> nan_wanted = wanted;
  nan_wanted[4] = std::nan("");
  EXPECT_NEAR(relative_error(view, nan_wanted).total, 0.1, 1e-12);
  EXPECT_THROW(relative_error(view, std::vector<double>(5)), InputError);
}

}  // namespace
}  // namespace epmoe::test
