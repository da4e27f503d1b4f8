#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// How expert weights are stored where that is narrower than what is multiplied in ("W4A16": 4-bit weights, 16-bit
/// rows; "W4A8": 8-bit rows). The values stay narrow in memory and are decoded while the GEMM runs.
namespace epmoe {

enum class WeightValues : std::uint8_t {
  as_compute,  ///< f32, bf16 or int8 per channel, as ComputeType says
  f16,         ///< multiplied in f32
  fp8_e4m3,    ///< 1-4-3 bits, no infinities, largest value 448; multiplied in bf16
  int4,        ///< codes 0..15 meaning code - 8, or code - zero point; multiplied in bf16, or in int8 if asked
  mxfp4,       ///< E2M1 values with one power-of-two scale (E8M0) per 32; multiplied in bf16
};

/// A weight is value * scale; `block_rows` output channels by `block_cols` inputs share a scale, 0 = all of them. The
/// last block of either axis may be shorter.
struct WeightFormat {
  WeightValues values = WeightValues::as_compute;
  std::int64_t block_rows = 0;
  std::int64_t block_cols = 0;
  bool zero_point = false;  ///< int4 only: one per scale, 0..15
  [[nodiscard]] bool narrow() const { return values != WeightValues::as_compute; }
  [[nodiscard]] bool scaled() const { return narrow() && values != WeightValues::f16; }
  /// Throws ConfigError naming the field that is not supported.
  void validate() const;
  bool operator==(const WeightFormat&) const = default;
};

/// f16, fp8_block (128 x 128), fp8_channel, fp8_tensor, int4_g32, int4_g64, int4_g128, int4_channel, the same four with
/// _zp for zero points, mxfp4; "as_compute" for the default. "custom" for what has no name.
std::string_view name(const WeightFormat& format);
std::optional<WeightFormat> parse_weight_format(std::string_view text);
/// All narrow formats that have a name.
std::vector<WeightFormat> narrow_weight_formats();

}  // namespace epmoe
