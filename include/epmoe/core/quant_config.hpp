#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epmoe/core/dtype.hpp"
#include "epmoe/core/weight_format.hpp"

/// Number formats of the four places where numbers are stored or travel (vLLM: FusedMoEQuantConfig).
namespace epmoe {

/// What the experts multiply in. int8 sums are of 32 bits: back ends refuse a hidden or intermediate size beyond
/// 66,311 = floor((2^31 - 1) / (255 * 127)), the most products of a row's byte and a weight that cannot overflow.
enum class ComputeType : std::uint8_t { f32, bf16, int8 };
/// How a row's hidden values travel to the experts.
enum class DispatchType : std::uint8_t { f32, f16, bf16, int8 };  // int8: one f32 scale per token
/// How an expert's rows travel home.
enum class CombineType : std::uint8_t { f32, bf16 };

std::string_view name(ComputeType type);
std::string_view name(DispatchType type);
std::string_view name(CombineType type);
std::optional<ComputeType> parse_compute_type(std::string_view text);
std::optional<DispatchType> parse_dispatch_type(std::string_view text);
std::optional<CombineType> parse_combine_type(std::string_view text);

/// The wire types that `auto` means: int8 for int8 compute, f32 for f32, else bf16; combine f32 for f32, else bf16.
DispatchType default_dispatch_type(ComputeType compute);
CombineType default_combine_type(ComputeType compute);

/// One quantised operand: how its values are scaled.
struct ScaleConfig {
  enum class Granularity : std::uint8_t { none, per_tensor, per_token, per_channel, per_block };
  Granularity granularity = Granularity::none;
  bool is_static = false;                       ///< the scale comes with the checkpoint instead of from the values
  std::optional<float> static_scale;            ///< per-tensor static activation scale
  std::int64_t block_rows = 0, block_cols = 0;  ///< per_block only
  bool zero_point = false;
  bool packed_ue8m0 = false;  ///< power-of-two scales packed four to an i32
};

/// Everything the experts need to know about numbers. a1: rows into the first GEMM, a2: rows into the second,
/// w1: gate and up weights, w2: down weights.
struct QuantConfig {
  ComputeType compute = ComputeType::f32;
  ScaleConfig a1, a2, w1, w2;
  WeightFormat weights;  ///< of w1 and w2, whose scales follow from it if it is narrow
  bool w1_bias = false, w2_bias = false;
  std::optional<float> a1_global_scale, a2_global_scale;  ///< two-level formats
  std::optional<float> g1_alpha, g2_alpha;                ///< output factor of each GEMM in those formats

  [[nodiscard]] bool per_act_token() const { return a1.granularity == ScaleConfig::Granularity::per_token; }
  [[nodiscard]] bool per_out_channel() const { return w1.granularity == ScaleConfig::Granularity::per_channel; }
  /// f32 and bf16: nothing scaled. int8: W8A8, dynamic per token, weights per channel.
  static QuantConfig for_compute(ComputeType compute);
  /// Weights stored narrow, multiplied in what their format is multiplied in: f32 for f16, else bf16.
  static QuantConfig for_weights(const WeightFormat& format);
  /// W4A8: int4 weights meet rows that are quantised per token as int8 compute does it. A group's sum is exact.
  static QuantConfig for_weights_and_int8_rows(const WeightFormat& format);
  /// Throws ConfigError naming the field that no experts part here can honour.
  void validate() const;
};

/// What the weights are called: "bf16", "int8", "fp8_block", "int4_g128", "int4_g128_a8" with int8 rows.
std::string name(const QuantConfig& config);
/// Every narrow weight format, int4 ones with bf16 and with int8 rows.
std::vector<QuantConfig> narrow_quant_configs();

/// Relative L2 error against the f64 reference that quantises alike that a result may have.
double tolerance(ComputeType compute);

}  // namespace epmoe
