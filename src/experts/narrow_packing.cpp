#include "experts/narrow_packing.hpp"

#include <algorithm>

namespace epmoe::experts {
namespace {

constexpr std::int64_t kColumns = 64;

/// Where things of one part lie.
struct Place {
  std::int64_t n, k, padded_k, bits, groups, group, values_offset, scale_offset, zero_offset;
  Place(const PackedLayout& layout, int part)
      : n(part == 2 ? layout.hidden : layout.intermediate),
        k(part == 2 ? layout.intermediate : layout.hidden),
        padded_k(layout.padded_k(k)),
        bits(layout.weight_bits()),
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
  [[nodiscard]] unsigned shift(std::int64_t col) const { return static_cast<unsigned>(col % (32 / bits) * bits); }
  [[nodiscard]] std::int64_t scale(std::int64_t row, std::int64_t col) const {
    return (row / kColumns * groups + std::min(col / group, groups - 1)) * kColumns + row % kColumns;
  }
};

}  // namespace

void pack_narrow(const PackedLayout& layout, int part, const QuantizedMatrix& matrix, std::byte* slot) {
  const Place place(layout, part);
  const WeightFormat& format = layout.weights;
  auto* words = reinterpret_cast<std::uint32_t*>(slot + place.values_offset);
  auto* scales = reinterpret_cast<float*>(slot + place.scale_offset);
  auto* zeros = reinterpret_cast<std::uint8_t*>(slot + place.zero_offset);
  const std::int64_t rows = layout.padded_n(place.n);
  std::fill_n(words, rows * place.padded_k * place.bits / 32, 0U);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t g = 0; g < place.groups; ++g) {
      const std::int64_t col = std::min(g * place.group, place.k - 1);
      const bool used = r < place.n;
      if (format.scaled()) scales[place.scale(r, col)] = used ? matrix.scales[matrix.block_of(r, col)] : 0.0F;
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
  const auto* scales = reinterpret_cast<const float*>(slot + place.scale_offset);
  const auto* zeros = reinterpret_cast<const std::uint8_t*>(slot + place.zero_offset);
  const std::uint32_t mask = (1U << static_cast<unsigned>(place.bits)) - 1U;
  for (std::int64_t r = 0; r < place.n; ++r)
    for (std::int64_t c = 0; c < place.k; ++c) {
      const auto code = static_cast<std::uint16_t>((words[place.word(r, c)] >> place.shift(c)) & mask);
      const std::uint8_t zero = format.zero_point ? zeros[place.scale(r, c)] : std::uint8_t{8};
      const float scale = format.scaled() ? scales[place.scale(r, c)] : 1.0F;
      out[r * place.k + c] = decode_value(format.values, code, zero) * scale;
    }
}

}  // namespace epmoe::experts
