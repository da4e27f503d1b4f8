#include "epmoe/core/weight_format.hpp"

#include <fmt/format.h>

#include "epmoe/core/error.hpp"

namespace epmoe {
namespace {

struct NamedFormat {
  std::string_view text;
  WeightFormat format;
};

constexpr NamedFormat kFormats[] = {
    {"as_compute", {}},
    {"f16", {WeightValues::f16, 0, 0, false}},
    {"fp8_block", {WeightValues::fp8_e4m3, 128, 128, false}},
    {"fp8_channel", {WeightValues::fp8_e4m3, 1, 0, false}},
    {"fp8_tensor", {WeightValues::fp8_e4m3, 0, 0, false}},
    {"int4_g32", {WeightValues::int4, 1, 32, false}},
    {"int4_g64", {WeightValues::int4, 1, 64, false}},
    {"int4_g128", {WeightValues::int4, 1, 128, false}},
    {"int4_channel", {WeightValues::int4, 1, 0, false}},
    {"int4_g32_zp", {WeightValues::int4, 1, 32, true}},
    {"int4_g64_zp", {WeightValues::int4, 1, 64, true}},
    {"int4_g128_zp", {WeightValues::int4, 1, 128, true}},
    {"int4_channel_zp", {WeightValues::int4, 1, 0, true}},
    {"mxfp4", {WeightValues::mxfp4, 1, 32, false}},
};

}  // namespace

void WeightFormat::validate() const {
  for (const NamedFormat& known : kFormats)
    if (known.format == *this) return;
  std::string names;
  for (const NamedFormat& known : kFormats) names += fmt::format("{}{}", names.empty() ? "" : ", ", known.text);
  throw ConfigError(fmt::format("weight format: found blocks of {} x {}{}, wanted those of one of {}", block_rows,
                                block_cols, zero_point ? " with zero points" : "", names));
}

std::string_view name(const WeightFormat& format) {
  for (const NamedFormat& known : kFormats)
    if (known.format == format) return known.text;
  return "custom";
}

std::optional<WeightFormat> parse_weight_format(std::string_view text) {
  for (const NamedFormat& known : kFormats)
    if (known.text == text) return known.format;
  return std::nullopt;
}

std::vector<WeightFormat> narrow_weight_formats() {
  std::vector<WeightFormat> formats;
  for (const NamedFormat& known : kFormats)
    if (known.format.narrow()) formats.push_back(known.format);
  return formats;
}

}  // namespace epmoe
