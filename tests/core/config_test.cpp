#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "core/expect_error.hpp"
#include "epmoe/core/error.hpp"
#include "epmoe/core/moe_config.hpp"
#include "epmoe/core/quant_config.hpp"

namespace epmoe {
namespace {

using test::expect_error;

MoeConfig good_shape() {
  MoeConfig config;
  config.hidden = 96;
  config.intermediate = 80;
  config.experts = 8;
  config.top_k = 2;
  return config;
}

template <class... Parts>
void expect_refused(const std::function<void(MoeConfig&)>& change, const Parts&... parts) {
  MoeConfig config = good_shape();
  change(config);
  expect_error<ConfigError>([&] { config.validate(); }, parts...);
}

TEST(MoeConfig, GoodOnesPass) {
  EXPECT_NO_THROW(good_shape().validate());
  MoeConfig config = good_shape();
  config.hidden = config.intermediate = 1;
  config.experts = 1024;
  config.top_k = 32;
  config.routing.groups = 8;
  config.routing.top_groups = 4;
  config.routing.group_score = RoutingConfig::GroupScore::sum_of_top2;
  config.shared_intermediate = 7;
  config.shared_gate = true;
  EXPECT_NO_THROW(config.validate());
  config.top_k = 1;
  config.router_weight_on_input = true;
  EXPECT_NO_THROW(config.validate());
}

TEST(MoeConfig, EveryBadFieldIsNamed) {
  expect_refused([](MoeConfig& c) { c.hidden = 0; }, "hidden is 0", "1 or more");
  expect_refused([](MoeConfig& c) { c.intermediate = -3; }, "intermediate is -3", "1 or more");
  expect_refused([](MoeConfig& c) { c.experts = 0; }, "experts is 0", "1 to 1024");
  expect_refused([](MoeConfig& c) { c.experts = 1025; }, "experts is 1025", "1 to 1024");
  expect_refused([](MoeConfig& c) { c.top_k = 0; }, "top_k is 0", "1 to 32");
  expect_refused([](MoeConfig& c) { c.experts = 64, c.top_k = 33; }, "top_k is 33", "1 to 32");
  expect_refused([](MoeConfig& c) { c.top_k = 9; }, "top_k is 9", "experts = 8");
  expect_refused([](MoeConfig& c) { c.routing.groups = 3; }, "groups is 3", "divisor of experts = 8");
  expect_refused([](MoeConfig& c) { c.routing.groups = 0; }, "groups is 0", "divisor");
  expect_refused([](MoeConfig& c) { c.routing.groups = 4, c.routing.top_groups = 5; }, "top_groups is 5", "groups = 4");
  expect_refused([](MoeConfig& c) { c.routing.top_groups = 0; }, "top_groups is 0", "1 to groups = 1");
  expect_refused([](MoeConfig& c) { c.routing.groups = 4, c.top_k = 3; }, "top_k is 3", "at most the 2 experts");
  expect_refused(
      [](MoeConfig& c) {
        c.routing.groups = 8, c.routing.top_groups = 2;
        c.routing.group_score = RoutingConfig::GroupScore::sum_of_top2;
      },
      "groups is 8", "at least 2 of 8 experts");
  expect_refused([](MoeConfig& c) { c.routing.renormalize_epsilon = -1.0F; }, "renormalize_epsilon is -1");
  expect_refused([](MoeConfig& c) { c.routing.scaling_factor = std::numeric_limits<float>::quiet_NaN(); },
                 "scaling_factor is nan");
  expect_refused([](MoeConfig& c) { c.shared_intermediate = -1; }, "shared_intermediate is -1");
  expect_refused([](MoeConfig& c) { c.shared_gate = true; }, "shared_gate is true", "shared_intermediate is 0");
  expect_refused([](MoeConfig& c) { c.router_weight_on_input = true; }, "router_weight_on_input is true", "top_k = 2");
}

TEST(MoeConfig, ActivationsReadBack) {
  for (const Activation a : activations()) EXPECT_EQ(parse_activation(name(a)), a);
  EXPECT_EQ(activations().size(), 10U);
  EXPECT_EQ(name(Activation::swiglu_oai), "swigluoai");
  EXPECT_FALSE(parse_activation("relu7").has_value());
  for (const Activation a : activations()) EXPECT_NE(is_gated(a), name(a).ends_with("_no_mul")) << name(a);
}

template <class... Parts>
void expect_refused(ComputeType compute, const std::function<void(QuantConfig&)>& change, const Parts&... parts) {
  QuantConfig config = QuantConfig::for_compute(compute);
  change(config);
  expect_error<ConfigError>([&] { config.validate(); }, parts...);
}

using Granularity = ScaleConfig::Granularity;

TEST(QuantConfig, GoodOnesPass) {
  for (const ComputeType compute : {ComputeType::f32, ComputeType::bf16, ComputeType::int8}) {
    QuantConfig config = QuantConfig::for_compute(compute);
    config.w1_bias = config.w2_bias = true;
    EXPECT_NO_THROW(config.validate());
    EXPECT_EQ(config.per_act_token(), compute == ComputeType::int8);
    EXPECT_EQ(config.per_out_channel(), compute == ComputeType::int8);
  }
  QuantConfig config = QuantConfig::for_compute(ComputeType::int8);
  config.a1 = {Granularity::per_tensor, true, 0.05F, 0, 0, false, false};
  EXPECT_NO_THROW(config.validate());
}

TEST(QuantConfig, EveryFieldThatNobodyHonoursIsNamed) {
  const auto i8 = ComputeType::int8;
  expect_refused(
      ComputeType::f32, [](QuantConfig& c) { c.a1.granularity = Granularity::per_token; },
      "a1.granularity is per_token", "none for f32");
  expect_refused(
      ComputeType::bf16, [](QuantConfig& c) { c.w2.granularity = Granularity::per_block; },
      "w2.granularity is per_block", "none for bf16");
  expect_refused(i8, [](QuantConfig& c) { c.a1.granularity = Granularity::none; }, "a1.granularity is none");
  expect_refused(i8, [](QuantConfig& c) { c.a2.granularity = Granularity::per_block; }, "a2.granularity is per_block");
  expect_refused(
      i8, [](QuantConfig& c) { c.w1.granularity = Granularity::per_tensor; }, "w1.granularity is per_tensor");
  expect_refused(i8, [](QuantConfig& c) { c.w2.is_static = true; }, "w2.is_static is true");
  expect_refused(i8, [](QuantConfig& c) { c.a1.is_static = true; }, "a1.is_static is true", "per_token");
  expect_refused(i8, [](QuantConfig& c) { c.a2.granularity = Granularity::per_tensor; }, "a2.is_static is false");
  expect_refused(
      i8, [](QuantConfig& c) { c.a1.granularity = Granularity::per_tensor, c.a1.is_static = true; },
      "a1.static_scale is missing");
  expect_refused(
      i8,
      [](QuantConfig& c) {
        c.a1.granularity = Granularity::per_tensor, c.a1.is_static = true, c.a1.static_scale = 0.0F;
      },
      "a1.static_scale is 0", "> 0");
  expect_refused(i8, [](QuantConfig& c) { c.a2.static_scale = 1.0F; }, "a2.static_scale is 1");
  expect_refused(i8, [](QuantConfig& c) { c.w1.zero_point = true; }, "w1.zero_point");
  expect_refused(i8, [](QuantConfig& c) { c.a1.packed_ue8m0 = true; }, "a1.packed_ue8m0");
  expect_refused(i8, [](QuantConfig& c) { c.a1_global_scale = 2.0F; }, "a1_global_scale is 2");
  expect_refused(i8, [](QuantConfig& c) { c.a2_global_scale = 2.0F; }, "a2_global_scale is 2");
  expect_refused(i8, [](QuantConfig& c) { c.g1_alpha = 0.5F; }, "g1_alpha is 0.5");
  expect_refused(i8, [](QuantConfig& c) { c.g2_alpha = 0.5F; }, "g2_alpha is 0.5");
}

TEST(QuantConfig, NamesAndDefaults) {
  for (const auto t : {ComputeType::f32, ComputeType::bf16, ComputeType::int8})
    EXPECT_EQ(parse_compute_type(name(t)), t);
  for (const auto t : {DispatchType::f32, DispatchType::f16, DispatchType::bf16, DispatchType::int8})
    EXPECT_EQ(parse_dispatch_type(name(t)), t);
  for (const auto t : {CombineType::f32, CombineType::bf16}) EXPECT_EQ(parse_combine_type(name(t)), t);
  EXPECT_FALSE(parse_dispatch_type("auto").has_value());
  EXPECT_EQ(default_dispatch_type(ComputeType::f32), DispatchType::f32);
  EXPECT_EQ(default_dispatch_type(ComputeType::bf16), DispatchType::bf16);
  EXPECT_EQ(default_dispatch_type(ComputeType::int8), DispatchType::int8);
  EXPECT_EQ(default_combine_type(ComputeType::f32), CombineType::f32);
  EXPECT_EQ(default_combine_type(ComputeType::int8), CombineType::bf16);
  EXPECT_EQ(tolerance(ComputeType::f32), 1e-5);
  EXPECT_EQ(tolerance(ComputeType::bf16), 1e-2);
}

}  // namespace
}  // namespace epmoe
