#include "epmoe/experts/expert_slots.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "epmoe/core/error.hpp"
#include "epmoe/quantize/int8.hpp"
#include "experts/narrow_packing.hpp"

namespace epmoe {
namespace {

static_assert(std::endian::native == std::endian::little, "packed words are little endian");

constexpr std::int64_t kColumns = 64;
constexpr std::int64_t kRowsAtOnce = 16;  // their words of one k fill a cache line

void check_shape(std::string_view tensor, const ConstMatrixView& view, std::int64_t rows, std::int64_t cols) {
  const bool floating = view.dtype == DType::f32 || view.dtype == DType::f16 || view.dtype == DType::bf16;
  if (view.rows != rows || view.cols != cols || !floating)
    throw InputError(
        fmt::format("expert {}: found {}, wanted [{}, {}] f32, f16 or bf16", tensor, describe(view), rows, cols));
}

void check_bias(std::string_view tensor, const ConstMatrixView& view, std::int64_t n, bool wanted) {
  if (view.rows == 0) return;
  if (!wanted)
    throw InputError(
        fmt::format("expert {}: found {}, but the slots were made without biases", tensor, describe(view)));
  check_shape(tensor, view, 1, n);
}

void check_absent(std::string_view tensor, const ConstMatrixView& view) {
  if (view.rows != 0)
    throw InputError(fmt::format("expert {}: found {}, but the slots were made for an activation that is not gated",
                                 tensor, describe(view)));
}

/// One of the matrices of a slot.
struct Part {
  std::byte* matrix;
  float* scales;              // int8
  std::int32_t* column_sums;  // int8
  float* biases;              // null without
  std::int64_t n, k;
};

Part part_of(const PackedLayout& layout, std::byte* slot, int part) {
  const std::int64_t offset = part == 0 ? layout.gate_offset() : part == 1 ? layout.up_offset() : layout.down_offset();
  const std::int64_t columns = layout.first_column(part);
  Part p{slot + offset,
         nullptr,
         nullptr,
         nullptr,
         part == 2 ? layout.hidden : layout.intermediate,
         part == 2 ? layout.intermediate : layout.hidden};
  if (layout.compute == ComputeType::int8 && !layout.weights.narrow()) {
    p.scales = reinterpret_cast<float*>(slot + layout.scale_offset()) + columns;
    p.column_sums = reinterpret_cast<std::int32_t*>(slot + layout.column_sum_offset()) + columns;
  }
  if (layout.biases) p.biases = reinterpret_cast<float*>(slot + layout.bias_offset()) + columns;
  return p;
}

/// Rounds one row of K weights to the compute type: `words` is its packed words, the padding already zero.
void encode_row(const PackedLayout& layout, const float* in, std::int64_t k, std::uint32_t* words, const Part& part,
                std::int64_t column) {
  switch (layout.compute) {
    case ComputeType::f32: std::memcpy(words, in, static_cast<std::size_t>(k) * 4); break;
    case ComputeType::bf16: {
      auto* out = reinterpret_cast<std::byte*>(words);
      for (std::int64_t i = 0; i < k; ++i) {
        const bf16 value = to_bf16(in[i]);
        std::memcpy(out + 2 * i, &value, 2);
      }
      break;
    }
    case ComputeType::int8: {
      auto* q = reinterpret_cast<std::int8_t*>(words);
      part.scales[column] = quantize_int8_channel(in, k, q);
      std::int32_t sum = 0;
      for (std::int64_t i = 0; i < k; ++i) sum += q[i];
      part.column_sums[column] = sum;
      break;
    }
  }
}

void decode_row(const PackedLayout& layout, const std::uint32_t* words, std::int64_t k, float scale, float* out) {
  const auto* bytes = reinterpret_cast<const std::byte*>(words);
  switch (layout.compute) {
    case ComputeType::f32: std::memcpy(out, words, static_cast<std::size_t>(k) * 4); break;
    case ComputeType::bf16:
      for (std::int64_t i = 0; i < k; ++i) {
        bf16 value;
        std::memcpy(&value, bytes + 2 * i, 2);
        out[i] = to_float(value);
      }
      break;
    case ComputeType::int8:
      for (std::int64_t i = 0; i < k; ++i) out[i] = static_cast<float>(static_cast<std::int8_t>(bytes[i])) * scale;
      break;
  }
}

/// Where a column's part of the first panel word lies, in 32-bit pieces; the next words follow `kColumns` parts later.
std::size_t first_piece(const PackedLayout& layout, std::int64_t n, std::int64_t words_per_row) {
  const std::int64_t pieces = layout.word_bytes / 4;
  return static_cast<std::size_t>((n / kColumns * kColumns * words_per_row + n % kColumns) * pieces);
}

void pack_matrix(const PackedLayout& layout, const ConstMatrixView& source, const Part& part) {
  const std::int64_t words_per_row = layout.padded_k(part.k) / layout.v();
  const std::int64_t pieces = layout.word_bytes / 4, pieces_per_row = words_per_row * pieces;
  std::vector<float> row(static_cast<std::size_t>(part.k));
  std::vector<std::uint32_t> rows(static_cast<std::size_t>(kRowsAtOnce * pieces_per_row));
  auto* packed = reinterpret_cast<std::uint32_t*>(part.matrix);
  for (std::int64_t n0 = 0; n0 < layout.padded_n(part.n); n0 += kRowsAtOnce) {
    std::fill(rows.begin(), rows.end(), 0U);
    for (std::int64_t i = 0; i < kRowsAtOnce; ++i) {
      const std::int64_t n = n0 + i;
      if (n < part.n) {
        read_row(source, n, row.data());
        encode_row(layout, row.data(), part.k, rows.data() + i * pieces_per_row, part, n);
      } else if (part.scales != nullptr) {
        part.scales[n] = 0.0F;
        part.column_sums[n] = 0;
      }
    }
    std::uint32_t* out = packed + first_piece(layout, n0, words_per_row);
    for (std::int64_t k = 0; k < pieces_per_row; k += pieces, out += kColumns * pieces)
      for (std::int64_t i = 0; i < kRowsAtOnce; ++i)
        for (std::int64_t j = 0; j < pieces; ++j)
          out[i * pieces + j] = rows[static_cast<std::size_t>(i * pieces_per_row + k + j)];
  }
}

void unpack_matrix(const PackedLayout& layout, const Part& part, float* out) {
  const std::int64_t words_per_row = layout.padded_k(part.k) / layout.v();
  const std::int64_t pieces = layout.word_bytes / 4;
  std::vector<std::uint32_t> row(static_cast<std::size_t>(words_per_row * pieces));
  const auto* packed = reinterpret_cast<const std::uint32_t*>(part.matrix);
  for (std::int64_t n = 0; n < part.n; ++n) {
    const std::uint32_t* in = packed + first_piece(layout, n, words_per_row);
    for (std::int64_t k = 0; k < words_per_row; ++k)
      for (std::int64_t j = 0; j < pieces; ++j)
        row[static_cast<std::size_t>(k * pieces + j)] = in[k * kColumns * pieces + j];
    decode_row(layout, row.data(), part.k, part.scales != nullptr ? part.scales[n] : 1.0F, out + n * part.k);
  }
}

void pack_bias(const PackedLayout& layout, const ConstMatrixView& bias, const Part& part) {
  if (part.biases == nullptr) return;
  std::fill(part.biases, part.biases + layout.padded_n(part.n), 0.0F);
  if (bias.rows > 0) read_row(bias, 0, part.biases);
}

}  // namespace

std::int64_t PackedLayout::v() const {
  return word_bytes / element_bytes();
}

std::int64_t PackedLayout::element_bytes() const {
  switch (compute) {
    case ComputeType::f32: return 4;
    case ComputeType::bf16: return 2;
    case ComputeType::int8: return 1;
  }
  return 0;
}

std::int64_t PackedLayout::weight_bits() const {
  switch (weights.values) {
    case WeightValues::as_compute: break;
    case WeightValues::f16: return 16;
    case WeightValues::fp8_e4m3: return 8;
    case WeightValues::int4:
    case WeightValues::mxfp4: return 4;
  }
  return 8 * element_bytes();
}

std::int64_t PackedLayout::narrow_scale_offset(int part) const {
  if (!weights.scaled()) return scale_offset();
  const std::int64_t gate = padded_n(intermediate) * groups(hidden), down = padded_n(hidden) * groups(intermediate);
  return scale_offset() +
         scale_bytes() * (std::min<std::int64_t>(part, first_matrices()) * gate + (part == 3 ? down : 0));
}
std::int64_t PackedLayout::zero_point_offset(int part) const {
  if (!weights.zero_point) return narrow_scale_offset(3);
  const std::int64_t gate = padded_n(intermediate) * groups(hidden), down = padded_n(hidden) * groups(intermediate);
  return narrow_scale_offset(3) + std::min<std::int64_t>(part, first_matrices()) * gate + (part == 3 ? down : 0);
}

std::int64_t PackedLayout::up_offset() const {
  return matrix_bytes(intermediate, hidden);
}
std::int64_t PackedLayout::down_offset() const {
  return first_matrices() * matrix_bytes(intermediate, hidden);
}
std::int64_t PackedLayout::scale_offset() const {
  return down_offset() + matrix_bytes(hidden, intermediate);
}

std::int64_t PackedLayout::column_sum_offset() const {
  return scale_offset() + (compute == ComputeType::int8 ? columns() * 4 : 0);
}
std::int64_t PackedLayout::bias_offset() const {
  if (weights.narrow()) return zero_point_offset(3);
  return column_sum_offset() + (compute == ComputeType::int8 ? columns() * 4 : 0);
}
std::int64_t PackedLayout::slot_bytes() const {
  return bias_offset() + (biases ? columns() * 4 : 0);
}

ExpertSlots::ExpertSlots(const PackedLayout& layout, std::int64_t slots, std::int64_t spare_slots)
    : layout_(layout), slots_(slots) {
  if (layout.hidden < 1 || layout.intermediate < 1 || slots < 0 || spare_slots < 0)
    throw ConfigError(fmt::format("expert slots: hidden {}, intermediate {}, slots {}, spare slots {}", layout.hidden,
                                  layout.intermediate, slots, spare_slots));
  if (layout.word_bytes != 4 && layout.word_bytes != 8)
    throw ConfigError(fmt::format("expert slots: words of {} bytes, wanted 4 or 8", layout.word_bytes));
  if (layout.weights.narrow() && layout.word_bytes != 4)
    throw ConfigError(fmt::format("expert slots: narrow weights with words of {} bytes, wanted 4", layout.word_bytes));
  memory_ = AlignedBuffer((slots + spare_slots) * layout.slot_bytes());
  for (std::int64_t s = 0; s < slots + spare_slots; ++s) physical_.push_back(s);
}

void ExpertSlots::first_touch(Executor& executor) {
  constexpr std::int64_t kPageBytes = 4096, kPieceBytes = 2 << 20;  // a huge page, where there are any
  const std::int64_t bytes = slots_ * layout_.slot_bytes();
  std::byte* memory = memory_.data();
  executor.run(
      ceil_div(bytes, kPieceBytes),
      [&](std::int64_t piece, int) {
        const std::int64_t end = std::min(bytes, (piece + 1) * kPieceBytes);
        for (std::int64_t at = piece * kPieceBytes; at < end; at += kPageBytes) memory[at] = std::byte{0};
      },
      nullptr);
}

std::byte* ExpertSlots::checked_slot(std::int64_t slot) {
  const auto all = static_cast<std::int64_t>(physical_.size());
  if (slot < 0 || slot >= all) throw InputError(fmt::format("expert slot {} is not in [0, {})", slot, all));
  return memory_.data() + physical_[static_cast<std::size_t>(slot)] * layout_.slot_bytes();
}

void ExpertSlots::pack(std::int64_t slot, const ExpertWeights& weights) {
  std::byte* bytes = checked_slot(slot);
  const std::int64_t h = layout_.hidden, i = layout_.intermediate;
  check_shape("gate", weights.gate, i, h);
  if (layout_.gated)
    check_shape("up", weights.up, i, h);
  else
    check_absent("up", weights.up);
  check_shape("down", weights.down, h, i);
  check_bias("gate bias", weights.gate_bias, i, layout_.biases);
  if (layout_.gated)
    check_bias("up bias", weights.up_bias, i, layout_.biases);
  else
    check_absent("up bias", weights.up_bias);
  check_bias("down bias", weights.down_bias, h, layout_.biases);
  const std::pair<const ConstMatrixView*, const ConstMatrixView*> parts[] = {
      {&weights.gate, &weights.gate_bias}, {&weights.up, &weights.up_bias}, {&weights.down, &weights.down_bias}};
  for (int p = 0; p < 3; ++p) {
    if (p == 1 && !layout_.gated) continue;
    const Part part = part_of(layout_, bytes, p);
    if (layout_.weights.narrow())
      experts::pack_narrow(layout_, p, quantize_matrix(layout_.weights, *parts[p].first), bytes);
    else
      pack_matrix(layout_, *parts[p].first, part);
    pack_bias(layout_, *parts[p].second, part);
  }
}

namespace {
void unpack_part(const ExpertSlots& slots, std::int64_t slot, int part, float* out) {
  if (slots.layout().weights.narrow()) return experts::unpack_narrow(slots.layout(), part, slots.slot(slot), out);
  // Part is shared with packing, which writes; nothing is written here.
  unpack_matrix(slots.layout(), part_of(slots.layout(), const_cast<std::byte*>(slots.slot(slot)), part), out);
}
}  // namespace

void ExpertSlots::unpack_gate(std::int64_t slot, float* out) const {
  unpack_part(*this, slot, 0, out);
}
void ExpertSlots::unpack_up(std::int64_t slot, float* out) const {
  if (!layout_.gated) throw InputError("expert slots: asked for the up matrix, but the activation is not gated");
  unpack_part(*this, slot, 1, out);
}
void ExpertSlots::unpack_down(std::int64_t slot, float* out) const {
  unpack_part(*this, slot, 2, out);
}

std::span<const std::byte> ExpertSlots::export_slot(std::int64_t slot) const {
  return {const_cast<ExpertSlots*>(this)->checked_slot(slot), static_cast<std::size_t>(layout_.slot_bytes())};
}

void ExpertSlots::import_slot(std::int64_t slot, std::span<const std::byte> bytes) {
  std::byte* to = checked_slot(slot);
  if (static_cast<std::int64_t>(bytes.size()) != layout_.slot_bytes())
    throw InputError(
        fmt::format("import into expert slot {}: found {} bytes, wanted {}", slot, bytes.size(), layout_.slot_bytes()));
  std::memcpy(to, bytes.data(), bytes.size());
}

void ExpertSlots::swap_slots(std::int64_t a, std::int64_t b) {
  checked_slot(a);
  checked_slot(b);
  std::swap(physical_[static_cast<std::size_t>(a)], physical_[static_cast<std::size_t>(b)]);
}

}  // namespace epmoe
