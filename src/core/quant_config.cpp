#include "epmoe/core/quant_config.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "core/name_table.hpp"
#include "epmoe/core/error.hpp"

namespace epmoe {
namespace {

using Granularity = ScaleConfig::Granularity;

constexpr NamedValue<ComputeType> kComputeTypes[] = {
    {ComputeType::f32, "f32"}, {ComputeType::bf16, "bf16"}, {ComputeType::int8, "int8"}};
constexpr NamedValue<DispatchType> kDispatchTypes[] = {
    {DispatchType::f32, "f32"}, {DispatchType::f16, "f16"}, {DispatchType::bf16, "bf16"}, {DispatchType::int8, "int8"}};
constexpr NamedValue<CombineType> kCombineTypes[] = {{CombineType::f32, "f32"}, {CombineType::bf16, "bf16"}};
constexpr NamedValue<Granularity> kGranularities[] = {{Granularity::none, "none"},
                                                      {Granularity::per_tensor, "per_tensor"},
                                                      {Granularity::per_token, "per_token"},
                                                      {Granularity::per_channel, "per_channel"},
                                                      {Granularity::per_block, "per_block"}};

[[noreturn]] void refuse(const std::string& field, const std::string& found, const std::string& wanted) {
  throw ConfigError(fmt::format("quantisation: {} is {}, wanted {}", field, found, wanted));
}

void validate_common(const char* operand, const ScaleConfig& scale) {
  if (scale.zero_point) refuse(fmt::format("{}.zero_point", operand), "set", "no zero points");
  if (scale.packed_ue8m0) refuse(fmt::format("{}.packed_ue8m0", operand), "set", "f32 scales");
}

void want_granularity(const char* operand, const ScaleConfig& scale, bool ok, const std::string& wanted) {
  if (!ok)
    refuse(fmt::format("{}.granularity", operand), std::string(find_name(kGranularities, scale.granularity)), wanted);
}

/// int8 activations: dynamic per token, or one static scale for the tensor.
void validate_activation(const char* operand, const ScaleConfig& scale) {
  want_granularity(operand, scale,
                   scale.granularity == Granularity::per_token || scale.granularity == Granularity::per_tensor,
                   "per_token or per_tensor for int8 compute");
  const bool per_tensor = scale.granularity == Granularity::per_tensor;
  if (scale.is_static != per_tensor)
    refuse(fmt::format("{}.is_static", operand), scale.is_static ? "true" : "false",
           per_tensor ? "true for per_tensor scales" : "false for per_token scales");
  if (per_tensor && !scale.static_scale) refuse(fmt::format("{}.static_scale", operand), "missing", "a number > 0");
  if (scale.static_scale && !(std::isfinite(*scale.static_scale) && *scale.static_scale > 0.0F))
    refuse(fmt::format("{}.static_scale", operand), fmt::format("{}", *scale.static_scale), "a finite number > 0");
  if (!per_tensor && scale.static_scale)
    refuse(fmt::format("{}.static_scale", operand), fmt::format("{}", *scale.static_scale),
           "none for per_token scales");
}

void validate_weight(const char* operand, const ScaleConfig& scale) {
  want_granularity(operand, scale, scale.granularity == Granularity::per_channel, "per_channel for int8 compute");
  if (scale.is_static)
    refuse(fmt::format("{}.is_static", operand), "true", "false: scales are made when weights are packed");
}

ScaleConfig narrow_scales(const WeightFormat& format) {
  ScaleConfig scale;
  scale.zero_point = format.zero_point;
  if (!format.scaled()) return scale;
  if (format.block_cols == 0) {
    scale.granularity = format.block_rows == 0 ? Granularity::per_tensor : Granularity::per_channel;
    return scale;
  }
  scale.granularity = Granularity::per_block;
  scale.block_rows = format.block_rows;
  scale.block_cols = format.block_cols;
  return scale;
}

/// Weights in a narrow format: the compute type it is multiplied in, and scales as the format says.
void validate_narrow(const QuantConfig& config) {
  config.weights.validate();
  const ComputeType wanted = config.weights.values == WeightValues::f16 ? ComputeType::f32 : ComputeType::bf16;
  const bool int4 = config.weights.values == WeightValues::int4;
  if (config.compute != wanted && !(int4 && config.compute == ComputeType::int8))
    refuse("compute", std::string(name(config.compute)),
           fmt::format("{}{} for {} weights", name(wanted), int4 ? " or int8" : "", name(config.weights)));
  const ScaleConfig scale = narrow_scales(config.weights);
  const std::pair<const char*, const ScaleConfig&> operands[] = {{"w1", config.w1}, {"w2", config.w2}};
  for (const auto& [operand, found] : operands) {
    want_granularity(
        operand, found, found.granularity == scale.granularity,
        fmt::format("{} for {} weights", find_name(kGranularities, scale.granularity), name(config.weights)));
    if (found.block_rows != scale.block_rows || found.block_cols != scale.block_cols)
      refuse(fmt::format("{}.block", operand), fmt::format("{} x {}", found.block_rows, found.block_cols),
             fmt::format("{} x {} for {} weights", scale.block_rows, scale.block_cols, name(config.weights)));
    if (found.zero_point != scale.zero_point)
      refuse(fmt::format("{}.zero_point", operand), found.zero_point ? "set" : "not set",
             fmt::format("what {} weights have", name(config.weights)));
    if (found.is_static || found.static_scale || found.packed_ue8m0)
      refuse(fmt::format("{}.is_static", operand), "set", "scales that are made when weights are packed");
  }
}

}  // namespace

std::string_view name(ComputeType type) {
  return find_name(kComputeTypes, type);
}
std::string_view name(DispatchType type) {
  return find_name(kDispatchTypes, type);
}
std::string_view name(CombineType type) {
  return find_name(kCombineTypes, type);
}
std::optional<ComputeType> parse_compute_type(std::string_view text) {
  return find_value(kComputeTypes, text);
}
std::optional<DispatchType> parse_dispatch_type(std::string_view text) {
  return find_value(kDispatchTypes, text);
}
std::optional<CombineType> parse_combine_type(std::string_view text) {
  return find_value(kCombineTypes, text);
}

DispatchType default_dispatch_type(ComputeType compute) {
  switch (compute) {
    case ComputeType::f32: return DispatchType::f32;
    case ComputeType::bf16: return DispatchType::bf16;
    case ComputeType::int8: break;
  }
  return DispatchType::int8;
}

CombineType default_combine_type(ComputeType compute) {
  return compute == ComputeType::f32 ? CombineType::f32 : CombineType::bf16;
}

QuantConfig QuantConfig::for_compute(ComputeType compute) {
  QuantConfig config;
  config.compute = compute;
  if (compute == ComputeType::int8) {
    config.a1.granularity = config.a2.granularity = Granularity::per_token;
    config.w1.granularity = config.w2.granularity = Granularity::per_channel;
  }
  return config;
}

QuantConfig QuantConfig::for_weights(const WeightFormat& format) {
  format.validate();
  if (!format.narrow()) return for_compute(ComputeType::f32);
  QuantConfig config = for_compute(format.values == WeightValues::f16 ? ComputeType::f32 : ComputeType::bf16);
  config.weights = format;
  config.w1 = config.w2 = narrow_scales(format);
  return config;
}

QuantConfig QuantConfig::for_weights_and_int8_rows(const WeightFormat& format) {
  QuantConfig config = for_weights(format);
  config.compute = ComputeType::int8;
  config.a1.granularity = config.a2.granularity = Granularity::per_token;
  config.validate();
  return config;
}

void QuantConfig::validate() const {
  if (weights.narrow()) validate_narrow(*this);
  const struct {
    const char* operand;
    const ScaleConfig& scale;
    bool weight;
  } operands[] = {{"a1", a1, false}, {"a2", a2, false}, {"w1", w1, true}, {"w2", w2, true}};
  for (const auto& [operand, scale, weight] : operands) {
    if (weight && weights.narrow()) continue;
    validate_common(operand, scale);
    if (compute != ComputeType::int8)
      want_granularity(operand, scale, scale.granularity == Granularity::none,
                       fmt::format("none for {} compute", name(compute)));
    else if (weight)
      validate_weight(operand, scale);
    else
      validate_activation(operand, scale);
  }
  const struct {
    const char* field;
    const std::optional<float>& value;
  } two_level[] = {{"a1_global_scale", a1_global_scale},
                   {"a2_global_scale", a2_global_scale},
                   {"g1_alpha", g1_alpha},
                   {"g2_alpha", g2_alpha}};
  for (const auto& [field, value] : two_level)
    if (value) refuse(field, fmt::format("{}", *value), "none: no two-level format is built");
}

std::string name(const QuantConfig& config) {
  if (!config.weights.narrow()) return std::string(name(config.compute));
  return fmt::format("{}{}", name(config.weights), config.compute == ComputeType::int8 ? "_a8" : "");
}

std::vector<QuantConfig> narrow_quant_configs() {
  std::vector<QuantConfig> configs;
  for (const WeightFormat& format : narrow_weight_formats()) {
    configs.push_back(QuantConfig::for_weights(format));
    if (format.values == WeightValues::int4) configs.push_back(QuantConfig::for_weights_and_int8_rows(format));
  }
  return configs;
}

double tolerance(ComputeType compute) {
  return compute == ComputeType::f32 ? 1e-5 : 1e-2;
}

}  // namespace epmoe
