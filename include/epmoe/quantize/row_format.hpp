#pragma once
#include <cstddef>
#include <cstdint>

#include "epmoe/core/quant_config.hpp"
#include "epmoe/core/tensor_view.hpp"

/// Rows as they travel. A dispatch row is
///   hidden values | f32 scale (int8 only, 4-byte aligned) | top_k routing entries of 12 bytes | padding to 64 bytes
/// and a combine row is hidden values | padding to 64 bytes. Little endian. Local, thread-safe.
/// Rounding: to nearest, ties to even. int8 per token: s = max(amax, 1e-10) / 127, q = clamp(round(x / s), -127, 127);
/// a row with a NaN or Inf gets scale NaN, so it decodes to NaN in every column and touches no other row.
namespace epmoe {

/// A routing entry of a dispatch row. `physical_expert` is kNoExpert in unused entries.
struct WireEntry {
  std::int32_t physical_expert;
  std::uint16_t k;
  std::uint16_t shard;
  float weight;
};
static_assert(sizeof(WireEntry) == 12);

/// Bytes of one hidden value on the wire.
std::int64_t value_bytes(DispatchType type);

class DispatchRowFormat {
 public:
  DispatchRowFormat() = default;
  DispatchRowFormat(DispatchType type, std::int64_t hidden, std::int64_t top_k);
  [[nodiscard]] DispatchType type() const { return type_; }
  [[nodiscard]] std::int64_t hidden() const { return hidden_; }
  [[nodiscard]] std::int64_t top_k() const { return top_k_; }
  [[nodiscard]] std::int64_t scale_offset_bytes() const { return scale_offset_; }
  [[nodiscard]] std::int64_t entries_offset_bytes() const { return entries_offset_; }
  [[nodiscard]] std::int64_t row_bytes() const { return row_bytes_; }
  [[nodiscard]] std::int64_t row_blocks() const { return row_bytes_ / 64; }
  /// Writes the hidden values (and scale) of row `token` of x, times `factor`, to `out`. x is f32, f16 or bf16.
  /// Routing entries are left alone; padding bytes are zeroed. Values that need no change of format are copied.
  void encode(ConstMatrixView x, std::int64_t token, float factor, std::byte* out) const;
  /// The hidden values as f32 [hidden].
  void decode(const std::byte* row, float* out) const;

 private:
  DispatchType type_ = DispatchType::f32;
  std::int64_t hidden_ = 0, top_k_ = 0, scale_offset_ = 0, entries_offset_ = 0, row_bytes_ = 0;
};

class CombineRowFormat {
 public:
  CombineRowFormat() = default;
  CombineRowFormat(CombineType type, std::int64_t hidden);
  [[nodiscard]] CombineType type() const { return type_; }
  [[nodiscard]] std::int64_t row_bytes() const { return row_bytes_; }
  [[nodiscard]] std::int64_t row_blocks() const { return row_bytes_ / 64; }
  void encode(const float* in, std::byte* out) const;
  /// out += the row's values.
  void decode_add(const std::byte* row, float* out) const;

 private:
  CombineType type_ = CombineType::f32;
  std::int64_t hidden_ = 0, row_bytes_ = 0;
};

/// Decodes the hidden values of a batch row: `values` in `type` with `scale` (int8 only) to f32.
void decode_hidden(DispatchType type, const std::byte* values, float scale, std::int64_t hidden, float* out);

}  // namespace epmoe
