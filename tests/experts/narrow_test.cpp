#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "epmoe/core/error.hpp"
#include "epmoe/quantize/narrow_floats.hpp"
#include "epmoe/quantize/quantized_matrix.hpp"
#include "experts/expert_case.hpp"
#include "support/world.hpp"

/// Narrow weight formats: what their codes mean, what packing keeps, and the native kernels against the f64 reference.
namespace epmoe::test {
namespace {

TEST(NarrowFloats, E4m3CodesMeanWhatTheSpecificationSays) {
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<std::uint8_t>(code);
    const int exponent = (code >> 3) & 15, mantissa = code & 7;
    const double sign = (code & 0x80) != 0 ? -1.0 : 1.0;
    const double wanted =
        exponent == 0 ? mantissa * std::ldexp(1.0, -9) : (1.0 + mantissa / 8.0) * std::ldexp(1.0, exponent - 7);
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(from_e4m3(bits)));
      continue;
    }
    EXPECT_EQ(static_cast<double>(from_e4m3(bits)), sign * wanted) << code;
    EXPECT_EQ(to_e4m3(from_e4m3(bits)), bits);
    if ((code & 0x7f) < 0x7e) {  // half way to the next: the even code wins
      const float next = from_e4m3(static_cast<std::uint8_t>(code + 1));
      EXPECT_EQ(to_e4m3((from_e4m3(bits) + next) / 2.0F), static_cast<std::uint8_t>(code + (code & 1))) << code;
    }
  }
  EXPECT_EQ(from_e4m3(0x7e), 448.0F);
  EXPECT_EQ(to_e4m3(1e30F), 0x7e);
  EXPECT_EQ(to_e4m3(-INFINITY), 0xfe);
}

TEST(NarrowFloats, E2m1AndE8m0) {
  const float table[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  for (std::uint8_t code = 0; code < 16; ++code) {
    EXPECT_EQ(from_e2m1(code), (code & 8) != 0 ? -table[code & 7] : table[code & 7]);
    EXPECT_EQ(to_e2m1(from_e2m1(code)), code);
  }
  const std::pair<float, float> ties[] = {{0.25F, 0.0F}, {0.75F, 1.0F}, {1.25F, 1.0F}, {1.75F, 2.0F},
                                          {2.5F, 2.0F},  {3.5F, 4.0F},  {5.0F, 4.0F},  {100.0F, 6.0F}};
  for (const auto& [value, wanted] : ties) EXPECT_EQ(from_e2m1(to_e2m1(value)), wanted) << value;
  for (int code = 0; code < 255; ++code)
    EXPECT_EQ(static_cast<double>(from_e8m0(static_cast<std::uint8_t>(code))), std::ldexp(1.0, code - 127));
  EXPECT_TRUE(std::isnan(from_e8m0(255)));
}

constexpr std::int64_t kSizes[] = {1, 7, 31, 32, 33, 80, 96, 176, 511};
constexpr std::int64_t kRows[] = {1, 2, 3, 4, 5, 6, 7, 8, 17, 33, 65};

QuantConfig quant_of(std::string_view weights) {
  return QuantConfig::for_weights(*parse_weight_format(weights));
}

ExpertsConfig config_of(const QuantConfig& format, Shape shape, bool biases, std::int64_t experts) {
  ExpertsConfig config = experts_config(shape, ComputeType::bf16, Activation::silu, biases, experts);
  config.quant = format;
  config.quant.w1_bias = config.quant.w2_bias = biases;
  return config;
}

PackedLayout layout_of(const ExpertsConfig& config) {
  TestContext context;
  return make_experts("native", config, context)->packed_layout();
}

TEST(NarrowSlots, UnpackingGivesTheQuantisedWeightsExactly) {
  for (const QuantConfig& format : narrow_quant_configs())
    for (const std::int64_t hidden : kSizes)
      for (const std::int64_t intermediate : {std::int64_t{1}, std::int64_t{65}, std::int64_t{176}}) {
        const Shape shape{hidden, intermediate};
        const RandomExperts experts(1, shape, DType::bf16, false);
        const ExpertSlots slots = experts.pack(layout_of(config_of(format, shape, false, 1)));
        std::vector<float> found(static_cast<std::size_t>(hidden * intermediate)), wanted(found.size());
        const auto same = [&](ConstMatrixView source) {
          const QuantizedMatrix q = quantize_matrix(format.weights, source);
          for (std::int64_t r = 0; r < q.rows; ++r) dequantize_row(q, r, wanted.data() + r * q.cols);
          return std::memcmp(found.data(), wanted.data(), found.size() * 4) == 0;
        };
        slots.unpack_gate(0, found.data());
        EXPECT_TRUE(same(experts.experts[0].gate.view())) << name(format) << " " << hidden << " " << intermediate;
        slots.unpack_up(0, found.data());
        EXPECT_TRUE(same(experts.experts[0].up.view())) << name(format) << " " << hidden << " " << intermediate;
        slots.unpack_down(0, found.data());
        EXPECT_TRUE(same(experts.experts[0].down.view())) << name(format) << " " << hidden << " " << intermediate;
      }
}

TEST(NarrowExperts, MatchTheReferenceThatQuantisesAlike) {
  std::size_t turn = 0;
  for (const QuantConfig& format : narrow_quant_configs())
    for (std::size_t i = 0; i < 11; ++i, ++turn) {
      const Shape shape{kSizes[(turn * 5 + i) % 9], kSizes[(turn * 7 + 2 * i) % 9]};
      const std::int64_t rows = kRows[i], experts = turn % 3 == 0 ? 8 : turn % 3;
      const bool biases = turn % 2 == 0;
      const auto values = random_rows(rows, shape.hidden);
      const auto x = const_matrix_view(values.data(), rows, shape.hidden);
      ExpertsConfig config = config_of(format, shape, biases, experts);
      const DispatchType wire = default_dispatch_type(config.quant.compute);
      const TestBatch batch(x, wire, experts, two_choices(rows, experts));
      const RandomExperts weights(experts, shape, DType::f32, biases);
      const auto wanted = reference_entries(config, wire, x, batch, weights);
      TestContext context;
      for (const std::string& isa : isas()) {
        config.isa = isa;
        const auto native = make_experts("native", config, context);
        const RunResult found = run(*native, batch.batch, weights.pack(native->packed_layout()), context);
        const auto error = relative_error(const_matrix_view(found.rows.data(), 2 * rows, shape.hidden), wanted);
        EXPECT_LE(error.total, tolerance(config.quant.compute))
            << isa << " " << name(format) << " H " << shape.hidden << " I " << shape.intermediate << " M " << rows;
        EXPECT_LE(error.worst_row, 4 * tolerance(config.quant.compute)) << isa << " " << name(format);
        EXPECT_TRUE(found.guards_intact) << isa << " " << name(format);
      }
    }
}

TEST(NarrowExperts, RefusalsNameTheField) {
  ExpertsConfig config = config_of(quant_of("int4_g128"), {64, 64}, false, 1);
  config.quant.compute = ComputeType::f32;
  EXPECT_THROW(config.quant.validate(), ConfigError);
  config = config_of(quant_of("mxfp4"), {64, 64}, false, 1);
  config.quant.w2.block_cols = 64;
  EXPECT_THROW(config.quant.validate(), ConfigError);
  WeightFormat odd = *parse_weight_format("int4_g128");
  odd.block_cols = 48;
  EXPECT_THROW(odd.validate(), ConfigError);
  for (const BackendInfo& backend : backends())
    if (backend.name == "onednn") {
      const Verdict verdict = backend.supports(config_of(quant_of("fp8_block"), {64, 64}, false, 1));
      EXPECT_FALSE(verdict);
      EXPECT_NE(verdict.reason.find("fp8_block"), std::string::npos);
    }
}

}  // namespace
}  // namespace epmoe::test
