#include "epmoe/quantize/row_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "epmoe/core/aligned_memory.hpp"
#include "epmoe/core/error.hpp"
#include "quantize/int8_values.hpp"

namespace epmoe {
namespace {

constexpr std::int64_t kBlockBytes = 64;
constexpr std::int64_t kPieceValues = 1024;  // converted at a time, on the stack

DType values_dtype(DispatchType type) {
  switch (type) {
    case DispatchType::f32: return DType::f32;
    case DispatchType::f16: return DType::f16;
    case DispatchType::bf16: return DType::bf16;
    case DispatchType::int8: break;
  }
  return DType::i8;
}

DType values_dtype(CombineType type) {
  return type == CombineType::f32 ? DType::f32 : DType::bf16;
}

void zero(std::byte* row, std::int64_t begin, std::int64_t end) {
  std::memset(row + begin, 0, static_cast<std::size_t>(end - begin));
}

}  // namespace

std::int64_t value_bytes(DispatchType type) {
  return size_bytes(values_dtype(type));
}

namespace {

/// Calls f(begin, values, n) for the pieces of a row of x, as f32 times `factor`.
template <class F>
void for_pieces(ConstMatrixView x, std::int64_t token, float factor, const F& f) {
  float piece[kPieceValues];
  for (std::int64_t begin = 0; begin < x.cols; begin += kPieceValues) {
    ConstMatrixView part = x;
    part.data = x.row(token) + begin * size_bytes(x.dtype);
    part.rows = 1;
    part.cols = std::min(kPieceValues, x.cols - begin);
    read_row(part, 0, piece);
    if (factor != 1.0F)
      for (std::int64_t i = 0; i < part.cols; ++i) piece[i] *= factor;
    f(begin, static_cast<const float*>(piece), part.cols);
  }
}

/// Writes int8 values and returns their scale.
float encode_int8(ConstMatrixView x, std::int64_t token, float factor, std::int8_t* q) {
  std::int32_t magnitude = 0;
  for_pieces(x, token, factor, [&](std::int64_t, const float* values, std::int64_t n) {
    magnitude = int8_values::max_magnitude_bits(values, n, magnitude);
  });
  if (magnitude >= int8_values::kInfinityBits) {
    std::fill_n(q, x.cols, std::int8_t{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float scale = int8_values::scale_of(magnitude, int8_values::kTokenEpsilon);
  for_pieces(x, token, factor, [&](std::int64_t begin, const float* values, std::int64_t n) {
    int8_values::round_to_int8(values, n, scale, q + begin);
  });
  return scale;
}

}  // namespace

DispatchRowFormat::DispatchRowFormat(DispatchType type, std::int64_t hidden, std::int64_t top_k)
    : type_(type), hidden_(hidden), top_k_(top_k) {
  if (hidden < 1) throw ConfigError(fmt::format("dispatch row: hidden is {}, wanted 1 or more", hidden));
  if (top_k < 0 || top_k > std::numeric_limits<std::uint16_t>::max())
    throw ConfigError(fmt::format("dispatch row: top_k is {}, wanted 0 to 65535", top_k));
  const std::int64_t values_bytes = round_up(hidden * size_bytes(values_dtype(type)), 4);
  const bool scaled = type == DispatchType::int8;
  scale_offset_ = scaled ? values_bytes : 0;
  entries_offset_ = values_bytes + (scaled ? 4 : 0);
  row_bytes_ = round_up(entries_offset_ + top_k * static_cast<std::int64_t>(sizeof(WireEntry)), kBlockBytes);
}

void DispatchRowFormat::encode(ConstMatrixView x, std::int64_t token, float factor, std::byte* out) const {
  if (x.cols != hidden_)
    throw InputError(fmt::format("dispatch row: x is {}, wanted {} columns", describe(x), hidden_));
  const DType wire = values_dtype(type_);
  const std::int64_t values_bytes = hidden_ * size_bytes(wire);
  if (type_ == DispatchType::int8) {
    const float scale = encode_int8(x, token, factor, reinterpret_cast<std::int8_t*>(out));
    std::memcpy(out + scale_offset_, &scale, sizeof(scale));
    zero(out, values_bytes, scale_offset_);
  } else {
    if (factor == 1.0F && x.dtype == wire) {
      std::memcpy(out, x.row(token), static_cast<std::size_t>(values_bytes));
    } else {
      for_pieces(x, token, factor, [&](std::int64_t begin, const float* values, std::int64_t n) {
        write_row({out + begin * size_bytes(wire), wire, 1, n, n, MemorySpace::host}, 0, values);
      });
    }
    zero(out, values_bytes, entries_offset_);
  }
  zero(out, entries_offset_ + top_k_ * static_cast<std::int64_t>(sizeof(WireEntry)), row_bytes_);
}

void DispatchRowFormat::decode(const std::byte* row, float* out) const {
  float scale = 1.0F;
  if (type_ == DispatchType::int8) std::memcpy(&scale, row + scale_offset_, sizeof(scale));
  decode_hidden(type_, row, scale, hidden_, out);
}

void decode_hidden(DispatchType type, const std::byte* values, float scale, std::int64_t hidden, float* out) {
  if (type != DispatchType::int8) {
    read_row({values, values_dtype(type), 1, hidden, hidden, MemorySpace::host}, 0, out);
    return;
  }
  const auto* q = reinterpret_cast<const std::int8_t*>(values);
  for (std::int64_t i = 0; i < hidden; ++i) out[i] = static_cast<float>(q[i]) * scale;
}

CombineRowFormat::CombineRowFormat(CombineType type, std::int64_t hidden) : type_(type), hidden_(hidden) {
  if (hidden < 1) throw ConfigError(fmt::format("combine row: hidden is {}, wanted 1 or more", hidden));
  row_bytes_ = round_up(hidden * size_bytes(values_dtype(type)), kBlockBytes);
}

void CombineRowFormat::encode(const float* in, std::byte* out) const {
  const DType wire = values_dtype(type_);
  write_row({out, wire, 1, hidden_, hidden_, MemorySpace::host}, 0, in);
  zero(out, hidden_ * size_bytes(wire), row_bytes_);
}

void CombineRowFormat::decode_add(const std::byte* row, float* out) const {
  const ConstMatrixView values{row, values_dtype(type_), 1, hidden_, hidden_, MemorySpace::host};
  for_pieces(values, 0, 1.0F, [&](std::int64_t begin, const float* piece, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) out[begin + i] += piece[i];
  });
}

}  // namespace epmoe
