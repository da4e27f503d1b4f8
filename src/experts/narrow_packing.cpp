#include "experts/narrow_packing.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "epmoe/quantize/narrow_floats.hpp"

namespace epmoe::experts {
namespace {

constexpr std::int64_t kColumns = 64;

/// Where things of one part lie.
struct Place {
  std::int64_t n, k, padded_k, bits, parallel, groups, group, values_offset, scale_offset, zero_offset;
  Place(const PackedLayout& layout, int part)
      : n(part == 2 ? layout.hidden : layout.intermediate),
        k(part == 2 ? layout.intermediate : layout.hidden),
        padded_k(layout.padded_k(k)),
        bits(layout.weight_bits()),
        parallel(layout.compute == ComputeType::int8 ? 4 : 2),
        groups(layout.groups(k)),
        group(layout.weights.block_cols == 0 ? padded_k : layout.weights.block_cols),
        values_offset(part == 0   ? layout.gate_offset()
                      : part == 1 ? layout.up_offset()
                                  : layout.down_offset()),
        scale_offset(layout.narrow_scale_offset(part)),
        zero_offset(layout.zero_point_offset(part)) {}
  [[nodiscard]] std::int64_t word(std::int64_t row, std::int64_t col) const {
    const std::int64_t per_word = 32 / bits;
    return (row / kColumns * (padded_k / per_word) + col / per_word) * kColumns + row % kColumns;
  }
  [[nodiscard]] unsigned shift(std::int64_t col) const {
    const std::int64_t in_word = col % (32 / bits);
    return static_cast<unsigned>(in_word % parallel * (32 / parallel) + in_word / parallel * bits);
  }
  [[nodiscard]] std::int64_t scale(std::int64_t row, std::int64_t col) const {
    return (row / kColumns * groups + std::min(col / group, groups - 1)) * kColumns + row % kColumns;
  }
};

/// Scales of mxfp4 are powers of two or NaN: their exponent is all there is to keep. Padding has the smallest one.
void write_scale(const PackedLayout& layout, std::byte* scales, std::int64_t at, float scale) {
  if (layout.scale_bytes() == 4) {
    std::memcpy(scales + at * 4, &scale, 4);
  } else {
    const std::uint32_t exponent = std::bit_cast<std::uint32_t>(scale) >> 23U;
    scales[at] = static_cast<std::byte>(exponent);  // 255 for NaN
  }
}
float read_scale(const PackedLayout& layout, const std::byte* scales, std::int64_t at) {
  if (layout.scale_bytes() == 1) return from_e8m0(static_cast<std::uint8_t>(scales[at]));
  float scale;
  std::memcpy(&scale, scales + at * 4, 4);
  return scale;
}

}  // namespace

void pack_narrow(const PackedLayout& layout, int part, const QuantizedMatrix& matrix, std::byte* slot) {
  const Place place(layout, part);
  const WeightFormat& format = layout.weights;
  auto* words = reinterpret_cast<std::uint32_t*>(slot + place.values_offset);
  std::byte* scales = slot + place.scale_offset;
  auto* zeros = reinterpret_cast<std::uint8_t*>(slot + place.zero_offset);
  const std::int64_t rows = layout.padded_n(place.n);
  std::fill_n(words, rows * place.padded_k * place.bits / 32, 0U);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t g = 0; g < place.groups; ++g) {
      const std::int64_t col = std::min(g * place.group, place.k - 1);
      const bool used = r < place.n;
      if (format.scaled())
        write_scale(layout, scales, place.scale(r, col), used ? matrix.scales[matrix.block_of(r, col)] : 0.0F);
      if (format.zero_point) zeros[place.scale(r, col)] = used ? matrix.zero_points[matrix.block_of(r, col)] : 0;
    }
    for (std::int64_t c = 0; c < place.padded_k; ++c) {
      std::uint32_t code = 0;
      if (r < place.n && c < place.k)
        code = matrix.codes[static_cast<std::size_t>(r * place.k + c)];
      else if (format.values == WeightValues::int4)
        code = format.zero_point ? zeros[place.scale(r, c)] : 8U;
      words[place.word(r, c)] |= code << place.shift(c);
    }
  }
}

void unpack_narrow(const PackedLayout& layout, int part, const std::byte* slot, float* out) {
  const Place place(layout, part);
  const WeightFormat& format = layout.weights;
  const auto* words = reinterpret_cast<const std::uint32_t*>(slot + place.values_offset);
  const std::byte* scales = slot + place.scale_offset;
  const auto* zeros = reinterpret_cast<const std::uint8_t*>(slot + place.zero_offset);
  const std::uint32_t mask = (1U << static_cast<unsigned>(place.bits)) - 1U;
  for (std::int64_t r = 0; r < place.n; ++r)
    for (std::int64_t c = 0; c < place.k; ++c) {
      const auto code = static_cast<std::uint16_t>((words[place.word(r, c)] >> place.shift(c)) & mask);
      const std::uint8_t zero = format.zero_point ? zeros[place.scale(r, c)] : std::uint8_t{8};
      const float scale = format.scaled() ? read_scale(layout, scales, place.scale(r, c)) : 1.0F;
      out[r * place.k + c] = decode_value(format.values, code, zero) * scale;
    }
}

}  // namespace epmoe::experts
