#include "epmoe/quantize/quantized_matrix.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "epmoe/core/aligned_memory.hpp"
#include "epmoe/core/dtype.hpp"
#include "epmoe/quantize/narrow_floats.hpp"

namespace epmoe {
namespace {

/// The values of one block, found row by row.
struct Range {
  float low = std::numeric_limits<float>::infinity(), high = -std::numeric_limits<float>::infinity();
  bool finite = true;
  void add(const float* w, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      finite = finite && std::isfinite(w[i]);
      low = std::min(low, w[i]);
      high = std::max(high, w[i]);
    }
  }
  [[nodiscard]] float magnitude() const { return std::max(std::fabs(low), std::fabs(high)); }
};

struct Scale {
  float scale;
  std::uint8_t zero_point;
};

float mxfp4_scale(float magnitude) {
  constexpr std::uint32_t kHalfOfFirstBit = 1U << 21U;  // half of the one fraction bit that E2M1 has
  const std::uint32_t rounded = std::bit_cast<std::uint32_t>(magnitude) + kHalfOfFirstBit;
  const auto exponent = static_cast<std::int32_t>(rounded >> 23U) - 2;  // biased
  return from_e8m0(static_cast<std::uint8_t>(std::clamp(exponent, 0, 254)));
}

Scale scale_of(const WeightFormat& format, const Range& range) {
  if (!range.finite) return {std::numeric_limits<float>::quiet_NaN(), 0};
  switch (format.values) {
    case WeightValues::fp8_e4m3: return {std::max(range.magnitude(), 1e-10F) / 448.0F, 0};
    case WeightValues::mxfp4: return {mxfp4_scale(range.magnitude()), 0};
    case WeightValues::int4: {
      if (!format.zero_point) return {std::max(std::fabs(range.high / 7.0F), std::fabs(range.low / -8.0F)), 0};
      const float low = std::min(range.low, 0.0F), high = std::max(range.high, 0.0F);
      const float scale = std::max(high - low, 1e-5F) / 15.0F;
      return {scale, static_cast<std::uint8_t>(std::clamp(std::nearbyint(-low / scale), 0.0F, 15.0F))};
    }
    case WeightValues::as_compute:
    case WeightValues::f16: break;
  }
  return {1.0F, 0};
}

std::uint16_t encode_value(const WeightFormat& format, float w, const Scale& s) {
  switch (format.values) {
    case WeightValues::f16: return to_f16(w).bits;
    case WeightValues::fp8_e4m3: return s.scale == s.scale ? to_e4m3(w / s.scale) : std::uint16_t{0};
    case WeightValues::mxfp4: return s.scale == s.scale ? to_e2m1(w / s.scale) : std::uint16_t{0};
    case WeightValues::int4: {
      const float zero = format.zero_point ? static_cast<float>(s.zero_point) : 8.0F;
      if (!(s.scale > 0.0F)) return static_cast<std::uint16_t>(zero);
      return static_cast<std::uint16_t>(std::clamp(std::nearbyint(w / s.scale) + zero, 0.0F, 15.0F));
    }
    case WeightValues::as_compute: break;
  }
  return 0;
}

}  // namespace

std::int64_t QuantizedMatrix::row_blocks() const {
  return format.block_rows == 0 ? 1 : ceil_div(rows, format.block_rows);
}
std::int64_t QuantizedMatrix::col_blocks() const {
  return format.block_cols == 0 ? 1 : ceil_div(cols, format.block_cols);
}
std::size_t QuantizedMatrix::block_of(std::int64_t row, std::int64_t col) const {
  const std::int64_t r = format.block_rows == 0 ? 0 : row / format.block_rows;
  const std::int64_t c = format.block_cols == 0 ? 0 : col / format.block_cols;
  return static_cast<std::size_t>(r * col_blocks() + c);
}

QuantizedMatrix quantize_matrix(const WeightFormat& format, const ConstMatrixView& source) {
  format.validate();
  QuantizedMatrix q{format, source.rows, source.cols, {}, {}, {}};
  q.codes.resize(static_cast<std::size_t>(q.rows * q.cols));
  const std::int64_t col_blocks = q.col_blocks();
  const std::int64_t width = format.block_cols == 0 ? q.cols : format.block_cols;
  const std::int64_t height = format.block_rows == 0 ? q.rows : format.block_rows;
  const auto columns = [&](std::int64_t block) { return std::min(width, q.cols - block * width); };
  std::vector<float> row(static_cast<std::size_t>(q.cols));
  std::vector<Scale> scales(static_cast<std::size_t>(col_blocks));
  for (std::int64_t begin = 0; begin < q.rows; begin += height) {
    const std::int64_t end = std::min(begin + height, q.rows);
    std::vector<Range> ranges(static_cast<std::size_t>(col_blocks));
    for (std::int64_t r = begin; r < end; ++r) {
      read_row(source, r, row.data());
      for (std::int64_t b = 0; b < col_blocks; ++b)
        ranges[static_cast<std::size_t>(b)].add(row.data() + b * width, columns(b));
    }
    for (std::size_t b = 0; b < ranges.size(); ++b) {
      scales[b] = scale_of(format, ranges[b]);
      if (format.scaled()) q.scales.push_back(scales[b].scale);
      if (format.zero_point) q.zero_points.push_back(scales[b].zero_point);
    }
    for (std::int64_t r = begin; r < end; ++r) {
      if (height > 1) read_row(source, r, row.data());  // else it is the one that was measured
      for (std::int64_t c = 0; c < q.cols; ++c)
        q.codes[static_cast<std::size_t>(r * q.cols + c)] =
            encode_value(format, row[static_cast<std::size_t>(c)], scales[static_cast<std::size_t>(c / width)]);
    }
  }
  return q;
}

float decode_value(WeightValues values, std::uint16_t code, std::uint8_t zero_point) {
  switch (values) {
    case WeightValues::f16: return to_float(f16{code});
    case WeightValues::fp8_e4m3: return from_e4m3(static_cast<std::uint8_t>(code));
    case WeightValues::mxfp4: return from_e2m1(static_cast<std::uint8_t>(code));
    case WeightValues::int4: return static_cast<float>(static_cast<int>(code) - static_cast<int>(zero_point));
    case WeightValues::as_compute: break;
  }
  return std::numeric_limits<float>::quiet_NaN();
}

void dequantize_row(const QuantizedMatrix& matrix, std::int64_t row, float* out) {
  for (std::int64_t c = 0; c < matrix.cols; ++c) {
    const std::size_t block = matrix.block_of(row, c);
    const std::uint8_t zero = matrix.format.zero_point ? matrix.zero_points[block] : std::uint8_t{8};
    const float scale = matrix.format.scaled() ? matrix.scales[block] : 1.0F;
    out[c] =
        decode_value(matrix.format.values, matrix.codes[static_cast<std::size_t>(row * matrix.cols + c)], zero) * scale;
  }
}

}  // namespace epmoe
