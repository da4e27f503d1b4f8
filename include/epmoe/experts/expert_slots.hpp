#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "epmoe/core/aligned_memory.hpp"
#include "epmoe/core/execution_context.hpp"
#include "epmoe/core/moe_config.hpp"
#include "epmoe/core/quant_config.hpp"
#include "epmoe/quantize/expert_weights.hpp"

/// Packed expert weights in slots of fixed size, so that an expert can move (export, import, swap at a step boundary)
/// with all that belongs to it: weights, scales, column sums, biases. Not thread-safe; distinct slots may be packed
/// from distinct threads.
namespace epmoe {

/// One matrix [N, K] (out, in) is stored as [N/64][K/v][64][v], N padded with zeros to 64 and K to 16 v. v values are
/// one word: with words of 4 bytes v = 1 for f32, 2 for bf16, 4 for int8, which oneDNN reads as BA16a64b, BA16a64b2a,
/// BA16a64b4a; matrix instructions of AArch64 want words of 8 bytes.
struct PackedLayout {
  ComputeType compute = ComputeType::f32;
  std::int64_t hidden = 0, intermediate = 0;
  bool biases = false;
  bool gated = true;            ///< false: no up matrix, and no columns of one
  std::int64_t word_bytes = 4;  ///< 4 or 8; 4 for narrow weights
  /// Narrow: matrices are [N/64][K/p][64] 4-byte words of p = 2, 4 or 8 values, value 2 i + h of a word at place i of
  /// its half h; where rows are int8, value 4 i + b at place i of its byte b.
  WeightFormat weights{};
  [[nodiscard]] std::int64_t v() const;
  [[nodiscard]] std::int64_t element_bytes() const;
  [[nodiscard]] std::int64_t padded_n(std::int64_t n) const { return round_up(n, 64); }
  [[nodiscard]] std::int64_t padded_k(std::int64_t k) const {
    return round_up(k, weights.narrow() ? 512 / std::max<std::int64_t>(16, 8 * element_bytes()) : 16 * v());
  }
  [[nodiscard]] std::int64_t matrix_bytes(std::int64_t n, std::int64_t k) const {
    return padded_n(n) * padded_k(k) * weight_bits() / 8;
  }
  [[nodiscard]] std::int64_t weight_bits() const;
  /// Scales along K of one output channel of narrow weights.
  [[nodiscard]] std::int64_t groups(std::int64_t k) const {
    return weights.block_cols == 0 ? 1 : ceil_div(k, weights.block_cols);
  }
  /// Bytes of one scale of narrow weights: mxfp4 has E8M0 codes, the others f32.
  [[nodiscard]] std::int64_t scale_bytes() const { return weights.values == WeightValues::mxfp4 ? 1 : 4; }
  /// Narrow weights: scales [N/64][groups][64] of a part (0 gate, 1 up, 2 down), then u8 zero points alike.
  [[nodiscard]] std::int64_t narrow_scale_offset(int part) const;
  [[nodiscard]] std::int64_t zero_point_offset(int part) const;
  /// Matrices of the first GEMM: gate and up, or gate alone.
  [[nodiscard]] std::int64_t first_matrices() const { return gated ? 2 : 1; }
  /// Where a part's columns (0 gate, 1 up, 2 down) begin among those that scales, sums and biases are stored for.
  [[nodiscard]] std::int64_t first_column(int part) const {
    return std::min<std::int64_t>(part, first_matrices()) * padded_n(intermediate);
  }
  /// Padded output columns of gate, up and down together.
  [[nodiscard]] std::int64_t columns() const { return first_column(2) + padded_n(hidden); }
  // Offsets in a slot, each a multiple of 64. gate and up are two matrices [I, H] one after the other, so together
  // they are one packed matrix of 2 padded_n(I) columns; down is [H, I].
  [[nodiscard]] std::int64_t gate_offset() const { return 0; }
  [[nodiscard]] std::int64_t up_offset() const;
  [[nodiscard]] std::int64_t down_offset() const;
  /// int8: f32 scale per output channel, [padded_n(I)] gate, [padded_n(I)] up (if gated), [padded_n(H)] down.
  [[nodiscard]] std::int64_t scale_offset() const;
  /// int8: i32 sum over K of each output channel (for kernels that shift rows to unsigned), same parts.
  [[nodiscard]] std::int64_t column_sum_offset() const;
  /// f32 biases in the same parts, if any.
  [[nodiscard]] std::int64_t bias_offset() const;
  [[nodiscard]] std::int64_t slot_bytes() const;
  bool operator==(const PackedLayout&) const = default;
};

class ExpertSlots {
 public:
  ExpertSlots(const PackedLayout& layout, std::int64_t slots, std::int64_t spare_slots = 0);
  [[nodiscard]] const PackedLayout& layout() const { return layout_; }
  [[nodiscard]] std::int64_t slots() const { return slots_; }
  [[nodiscard]] std::int64_t spare_slots() const { return static_cast<std::int64_t>(physical_.size()) - slots_; }
  [[nodiscard]] std::int64_t bytes() const { return memory_.size(); }
  /// Before the first pack(): writes a zero to every page of the slots (not the spare ones), dealing pages out to the
  /// workers, since a page lies on the NUMA node of whoever writes to it first. Which worker reads a page changes from
  /// call to call, as tiles are handed out dynamically: so pages on all nodes of the team are the best there is, with
  /// the bandwidth of all nodes instead of one, and (nodes - 1) / nodes of the reads far. A rank that stays on one NUMA
  /// node has all pages near in any case; there this only makes page faults of several workers at a time.
  void first_touch(Executor& executor);
  /// Converts, quantises and packs one expert; the source is not needed afterwards. Throws InputError naming tensor,
  /// shape found and wanted. Weights are rounded to nearest even; int8: quantize_int8_channel per output channel.
  void pack(std::int64_t slot, const ExpertWeights& weights);
  /// Packed weights back to f32 row-major: dequantised values, for tests and the reference.
  void unpack_gate(std::int64_t slot, float* out) const;  // [I, H]
  void unpack_up(std::int64_t slot, float* out) const;    // [I, H]; InputError without an up matrix
  void unpack_down(std::int64_t slot, float* out) const;  // [H, I]

  [[nodiscard]] const std::byte* slot(std::int64_t slot) const {
    return memory_.data() + physical_[static_cast<std::size_t>(slot)] * layout_.slot_bytes();
  }
  /// A slot's bytes as they are, to send elsewhere; import takes the same bytes (InputError on another size).
  [[nodiscard]] std::span<const std::byte> export_slot(std::int64_t slot) const;
  void import_slot(std::int64_t slot, std::span<const std::byte> bytes);
  /// Exchanges two slots (spare ones are numbered from slots()) without copying; only between steps.
  void swap_slots(std::int64_t a, std::int64_t b);

 private:
  std::byte* checked_slot(std::int64_t slot);
  PackedLayout layout_;
  std::int64_t slots_;
  AlignedBuffer memory_;
  std::vector<std::int64_t> physical_;  // slot -> place in memory
};

}  // namespace epmoe
