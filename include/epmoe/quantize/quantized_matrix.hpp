#pragma once
#include <cstdint>
#include <vector>

#include "epmoe/core/tensor_view.hpp"
#include "epmoe/core/weight_format.hpp"

/// A weight matrix in a narrow format, and the rules that make one. Packing and the f64 reference both use these.
/// Local, thread-safe. w is a block's weights, amax its largest magnitude; everything is computed in f32.
///   f16                 nearest even; no scale
///   fp8_e4m3            s = max(amax, 1e-10) / 448, code = e4m3(w / s), saturating
///   int4                s = max(|max / 7|, |min / -8|), code = clamp(nearest_even(w / s), -8, 7) + 8; zeros have s = 0
///   int4, zero point    lo = min(min, 0), hi = max(max, 0): s = max(hi - lo, 1e-5) / 15,
///                       z = clamp(nearest_even(-lo / s), 0, 15), code = clamp(nearest_even(w / s) + z, 0, 15)
///   mxfp4               e = floor(log2(amax rounded to two significant bits, half up)) - 2, s = 2^clamp(e, -127, 127),
///                       code = e2m1(w / s), saturating
/// The int4 rules are those of vLLM's weight quantiser (range widened to hold 0, so that the zero point exists), the
/// fp8 rule is that of rows, the mxfp4 rule is the "even" rounding of the OCP MX conversion as Quark and vLLM use it.
/// A block with a NaN or Inf gets scale NaN and so decodes to NaN, and touches no other block.
namespace epmoe {

struct QuantizedMatrix {
  WeightFormat format;
  std::int64_t rows = 0, cols = 0;
  std::vector<std::uint16_t> codes;       ///< [rows, cols]; the bits of f16, E4M3, E2M1 or 0..15
  std::vector<float> scales;              ///< [row_blocks(), col_blocks()]; empty for f16
  std::vector<std::uint8_t> zero_points;  ///< like scales; empty without
  [[nodiscard]] std::int64_t row_blocks() const;
  [[nodiscard]] std::int64_t col_blocks() const;
  /// Place in `scales` and `zero_points` of an element.
  [[nodiscard]] std::size_t block_of(std::int64_t row, std::int64_t col) const;
};

/// `source` [N, K] in f32, f16 or bf16. Throws ConfigError if the format is none of those above.
QuantizedMatrix quantize_matrix(const WeightFormat& format, const ConstMatrixView& source);

/// What a code means before its scale: exact in f32, and in bf16 except for f16.
float decode_value(WeightValues values, std::uint16_t code, std::uint8_t zero_point);
/// One row as f32: value * scale, the product rounded once.
void dequantize_row(const QuantizedMatrix& matrix, std::int64_t row, float* out);

}  // namespace epmoe
