#include "bench_formats.hpp"

#include "epmoe/core/aligned_memory.hpp"

namespace epmoe::cli {
namespace {

DotType dot_of(ComputeType compute) {
  switch (compute) {
    case ComputeType::bf16: return DotType::bf16;
    case ComputeType::int8: return DotType::int8;
    default: return DotType::f32;
  }
}

BenchFormat plain(ComputeType compute, double weight_bits) {
  BenchFormat format{std::string(name(compute)), QuantConfig::for_compute(compute), default_dispatch_type(compute),
                     dot_of(compute), weight_bits};
  if (compute == ComputeType::int8) {  // an f32 scale per output channel
    format.scale_bytes = 4.0;
    format.scale_rows = 1;
  }
  return format;
}

BenchFormat narrow(const QuantConfig& quant) {
  const WeightFormat& weights = quant.weights;
  BenchFormat format{name(quant), quant, default_dispatch_type(quant.compute), dot_of(quant.compute)};
  format.scale_rows = weights.block_rows;
  format.scale_cols = weights.block_cols;
  switch (weights.values) {
    case WeightValues::f16: format.weight_bits = 16.0; break;
    case WeightValues::fp8_e4m3:  // f32 scales
      format.weight_bits = 8.0;
      format.scale_bytes = 4.0;
      break;
    case WeightValues::int4:  // f32 scales, zero points of a byte: as slots hold them
      format.weight_bits = 4.0;
      format.scale_bytes = weights.zero_point ? 5.0 : 4.0;
      break;
    case WeightValues::mxfp4:  // scales of one byte
      format.weight_bits = 4.0;
      format.scale_bytes = 1.0;
      break;
    case WeightValues::as_compute: break;
  }
  return format;
}

std::int64_t blocks(std::int64_t size, std::int64_t block) {
  return block == 0 ? 1 : ceil_div(size, block);
}

}  // namespace

double BenchFormat::expert_bytes(const MoeConfig& shape) const {
  const std::int64_t first = is_gated(shape.activation) ? 2 : 1;  // matrices of the first GEMM
  const std::int64_t scales = first * blocks(shape.intermediate, scale_rows) * blocks(shape.hidden, scale_cols) +
                              blocks(shape.hidden, scale_rows) * blocks(shape.intermediate, scale_cols);
  return static_cast<double>((first + 1) * shape.hidden * shape.intermediate) * weight_bits / 8.0 +
         static_cast<double>(scales) * scale_bytes;
}

const std::vector<BenchFormat>& bench_formats() {
  static const std::vector<BenchFormat> formats = [] {
    std::vector<BenchFormat> all{plain(ComputeType::f32, 32.0), plain(ComputeType::bf16, 16.0),
                                 plain(ComputeType::int8, 8.0)};
    for (const QuantConfig& quant : narrow_quant_configs()) all.push_back(narrow(quant));
    return all;
  }();
  return formats;
}

}  // namespace epmoe::cli
