#pragma once
// How rows meet columns on AArch64, per number format: what arm_gemm.hpp builds its tiles from. Two kinds:
// - lanes: a vector holds one word of several columns and is multiplied by one lane of a segment of the row;
// - matrices: a segment holds 8-byte words of two columns and is multiplied by the same words of two rows.
// A unit is what one register of row data stands for: one row, or two. `pack` writes `words` words of a unit where the
// tiles read them, if they do not read the rows themselves.
#include "experts/kernels/arm_vectors.hpp"

namespace epmoe::kernels {
namespace {

/// C of lanes: rows of neighbouring columns.
template <class Accumulator_>
struct LaneSums {
  using Accumulator = Accumulator_;
  static constexpr int kRowsPerUnit = 1;
  static constexpr int kWordBytes = 4;
  static constexpr int kMaxUnits = 6;
  static constexpr int kAccumulators = 24;  // of 32 registers; the rest holds rows and columns
  template <int Vectors>
  [[gnu::always_inline]] static inline void load_sums(Accumulator (&acc)[Vectors], const float* c, const float*) {
    EPMOE_UNROLL
    for (int v = 0; v < Vectors; ++v) acc[v] = load<Accumulator>(c + v * kLanes);
  }
  template <int Vectors>
  [[gnu::always_inline]] static inline void store_sums(const Accumulator (&acc)[Vectors], float* c, float*) {
    EPMOE_UNROLL
    for (int v = 0; v < Vectors; ++v) store(c + v * kLanes, acc[v]);
  }
};

struct F32Lanes : LaneSums<F32> {
  static constexpr Rounding kRounding = Rounding::fused;
  static constexpr bool kPacked = false;
  static constexpr int kStepWords = 4, kStepBytes = 16;  // of K at a time, and bytes of a row for them
  template <int Step>
  static inline void add(F32& acc, const U32& a, const void* w) {
    multiply_add_lane<Step>(acc, load<F32>(w), a);
  }
};

/// Rows are widened to f32 when they are packed, so that the tiles widen columns only. A product of two bf16 is exact
/// in f32.
struct Bf16Lanes : LaneSums<F32> {
  static constexpr Rounding kRounding = Rounding::fused;
  static constexpr bool kPacked = true;
  static constexpr int kMaxUnits = 8;  // many rows share the work of widening
  static constexpr int kAccumulators = 16;
  static constexpr int kStepWords = 2, kStepBytes = 16;
  static inline void pack(const char* row, const char*, int64_t words, char* out) {
    for (int64_t i = 0; i < words; i += 2, row += 8, out += 16)
      store(out, __builtin_convertvector(load<HalfSegment>(row), Segment) << 16);
  }
  template <int Step>
  static inline void add(F32& acc, const U32& a, const void* w) {
    const U32 words = load<U32>(w);
    multiply_add_lane<2 * Step>(acc, (F32)(words << 16), a);
    multiply_add_lane<2 * Step + 1>(acc, (F32)(words & 0xffff0000U), a);
  }
};

#if defined(EPMOE_SVE) || defined(__ARM_FEATURE_DOTPROD)
struct Int8Lanes : LaneSums<I32> {
  static constexpr bool kPacked = false;
  static constexpr int kStepWords = 4, kStepBytes = 16;
  template <int Step>
  static inline void add(I32& acc, const U32& a, const void* w) {
    dot_lane<Step>(acc, load<I32>(w), a);
  }
};
#endif

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && defined(__ARM_FEATURE_MATMUL_INT8)
/// bf16 (F32 sums: the CPU rounds sums of pairs of products) or int8 (I32). The two rows of a unit do not touch each
/// other, so the bits of a row do not depend on its partner.
template <class Accumulator_>
struct MatrixWords {
  using Accumulator = Accumulator_;
  static constexpr Rounding kRounding = Rounding::pairs;
  static constexpr bool kPacked = true;
  static constexpr int kRowsPerUnit = 2;
  static constexpr int kWordBytes = 8;
  static constexpr int kMaxUnits = 4;
  static constexpr int kAccumulators = 24;
  static constexpr int kStepWords = 1, kStepBytes = 16;
  static inline void pack(const char* first, const char* second, int64_t words, char* out) {
    for (int64_t i = 0; i < words; i += 2, first += 16, second += 16, out += 32) {
      const uint64x2_t x = vreinterpretq_u64_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(first)));
      const uint64x2_t y = vreinterpretq_u64_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(second)));
      vst1q_u8(reinterpret_cast<uint8_t*>(out), vreinterpretq_u8_u64(vzip1q_u64(x, y)));
      vst1q_u8(reinterpret_cast<uint8_t*>(out + 16), vreinterpretq_u8_u64(vzip2q_u64(x, y)));
    }
  }
  template <int Step>
  static inline void add(Accumulator& acc, const U32& a, const void* w) {
    multiply_add_matrix(acc, a, load<U32>(w));
  }
  /// Two vectors of sums are 4 columns (per 128 bits) of two rows.
  template <int Vectors>
  [[gnu::always_inline]] static inline void load_sums(Accumulator (&acc)[Vectors], const float* first,
                                                      const float* second) {
    EPMOE_UNROLL
    for (int v = 0; v < Vectors; v += 2) {
      const U64 x = load<U64>(first + v / 2 * kLanes), y = load<U64>(second + v / 2 * kLanes);
      acc[v] = (Accumulator)merge_low_pairs(x, y);
      acc[v + 1] = (Accumulator)merge_high_pairs(x, y);
    }
  }
  template <int Vectors>
  [[gnu::always_inline]] static inline void store_sums(const Accumulator (&acc)[Vectors], float* first, float* second) {
    EPMOE_UNROLL
    for (int v = 0; v < Vectors; v += 2) {
      store(first + v / 2 * kLanes, even_pairs((U64)acc[v], (U64)acc[v + 1]));
      store(second + v / 2 * kLanes, odd_pairs((U64)acc[v], (U64)acc[v + 1]));
    }
  }
};
using Bf16Matrix = MatrixWords<F32>;
using Int8Matrix = MatrixWords<I32>;
#endif

}  // namespace
}  // namespace epmoe::kernels
