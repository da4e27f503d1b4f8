#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "epmoe/core/moe_config.hpp"
#include "epmoe/core/quant_config.hpp"
#include "epmoe/experts/machine_probe.hpp"

namespace epmoe::cli {

/// A number format of expert weights as `bench` names it.
struct BenchFormat {
  std::string name;
  QuantConfig quant;
  DispatchType rows = DispatchType::f32;  ///< what the rows arrive in
  DotType dot = DotType::f32;             ///< whose register peak counts: what the values are multiplied in
  double weight_bits = 32.0;              ///< of one stored weight
  double scale_bytes = 0.0;               ///< of one scale, with its zero point, in checkpoints of the format
  std::int64_t scale_rows = 0;            ///< output channels that share a scale, 0 = all of them
  std::int64_t scale_cols = 0;            ///< inputs that share a scale, 0 = all of them
  /// The fewest bytes one expert takes: its matrices with their scales, each scale once, without padding.
  [[nodiscard]] double expert_bytes(const MoeConfig& shape) const;
};
/// f32, bf16, int8 (W8A8), then all narrow formats that the library stores; "_a8" where int4 weights meet int8 rows.
const std::vector<BenchFormat>& bench_formats();

}  // namespace epmoe::cli
