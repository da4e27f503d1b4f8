#pragma once
// The AArch64 instructions that the tiles are built from, on NEON or, where EPMOE_SVE is defined, on SVE registers of
// EPMOE_VECTOR_BYTES (the file is then compiled with -msve-vector-bits). All of them work on segments of 128 bits, of
// which NEON has one.
#include "experts/kernels/vectors.hpp"
#if defined(EPMOE_SVE)
#include <arm_sve.h>
#endif

namespace epmoe::kernels {
namespace {

using U64 [[gnu::vector_size(EPMOE_VECTOR_BYTES)]] = uint64_t;
/// One 128-bit segment.
using Segment [[gnu::vector_size(16)]] = uint32_t;
using HalfSegment [[gnu::vector_size(8)]] = uint16_t;

#if defined(EPMOE_SVE)
static_assert(__ARM_FEATURE_SVE_BITS == 8 * EPMOE_VECTOR_BYTES);
using FixedF32 = svfloat32_t __attribute__((arm_sve_vector_bits(EPMOE_VECTOR_BYTES * 8)));
using FixedI32 = svint32_t __attribute__((arm_sve_vector_bits(EPMOE_VECTOR_BYTES * 8)));
using FixedU32 = svuint32_t __attribute__((arm_sve_vector_bits(EPMOE_VECTOR_BYTES * 8)));
using FixedU64 = svuint64_t __attribute__((arm_sve_vector_bits(EPMOE_VECTOR_BYTES * 8)));
#endif

/// 16 bytes into every segment.
inline U32 load_segment(const void* p) {
#if defined(EPMOE_SVE)
  const FixedU32 all = svld1rq_u32(svptrue_b32(), static_cast<const uint32_t*>(p));
  return (U32)all;
#else
  // As one register: g++ 12 would load each lane by itself.
  U32 all = load<U32>(p);
  asm("" : "+w"(all));
  return all;
#endif
}

/// acc + w * a[Lane of each segment], rounded once.
template <int Lane>
inline void multiply_add_lane(F32& acc, const F32& w, const U32& a) {
#if defined(EPMOE_SVE)
  const FixedF32 sum = svmla_lane_f32((FixedF32)acc, (FixedF32)w, (FixedF32)a, Lane);
  acc = (F32)sum;
#else
  acc = (F32)vfmaq_laneq_f32((float32x4_t)acc, (float32x4_t)w, (float32x4_t)a, Lane);
#endif
}

#if defined(EPMOE_SVE) || defined(__ARM_FEATURE_DOTPROD)
/// acc + the sum of four products of bytes, those of one lane of `a`'s segment with those of each lane of `w`.
template <int Lane>
inline void dot_lane(I32& acc, const I32& w, const U32& a) {
#if defined(EPMOE_SVE)
  const FixedI32 sum =
      svdot_lane_s32((FixedI32)acc, svreinterpret_s8_s32((FixedI32)w), svreinterpret_s8_u32((FixedU32)a), Lane);
  acc = (I32)sum;
#else
  acc = (I32)vdotq_laneq_s32((int32x4_t)acc, (int8x16_t)w, (int8x16_t)a, Lane);
#endif
}
#endif

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && defined(__ARM_FEATURE_MATMUL_INT8)
/// Each segment: two rows of four bf16 (a) times two columns of four (w) onto [row 0, row 0, row 1, row 1].
inline void multiply_add_matrix(F32& acc, const U32& a, const U32& w) {
#if defined(EPMOE_SVE)
  const FixedF32 sum =
      svbfmmla_f32((FixedF32)acc, svreinterpret_bf16_u32((FixedU32)a), svreinterpret_bf16_u32((FixedU32)w));
  acc = (F32)sum;
#else
  acc =
      (F32)vbfmmlaq_f32((float32x4_t)acc, vreinterpretq_bf16_u32((uint32x4_t)a), vreinterpretq_bf16_u32((uint32x4_t)w));
#endif
}
/// The same of eight int8.
inline void multiply_add_matrix(I32& acc, const U32& a, const U32& w) {
#if defined(EPMOE_SVE)
  const FixedI32 sum = svmmla_s32((FixedI32)acc, svreinterpret_s8_u32((FixedU32)a), svreinterpret_s8_u32((FixedU32)w));
  acc = (I32)sum;
#else
  acc = (I32)vmmlaq_s32((int32x4_t)acc, (int8x16_t)a, (int8x16_t)w);
#endif
}
#endif

// Of the 64-bit lanes of two vectors: the even ones, the odd ones; and back.
#if defined(EPMOE_SVE)
#define EPMOE_PAIRS(name, instruction)                             \
  inline U64 name(const U64& x, const U64& y) {                    \
    const FixedU64 result = instruction((FixedU64)x, (FixedU64)y); \
    return (U64)result;                                            \
  }
EPMOE_PAIRS(even_pairs, svuzp1_u64)
EPMOE_PAIRS(odd_pairs, svuzp2_u64)
EPMOE_PAIRS(merge_low_pairs, svzip1_u64)
EPMOE_PAIRS(merge_high_pairs, svzip2_u64)
#else
#define EPMOE_PAIRS(name, instruction)                     \
  inline U64 name(const U64& x, const U64& y) {            \
    return (U64)instruction((uint64x2_t)x, (uint64x2_t)y); \
  }
EPMOE_PAIRS(even_pairs, vuzp1q_u64)
EPMOE_PAIRS(odd_pairs, vuzp2q_u64)
EPMOE_PAIRS(merge_low_pairs, vzip1q_u64)
EPMOE_PAIRS(merge_high_pairs, vzip2q_u64)
#endif
#undef EPMOE_PAIRS

}  // namespace
}  // namespace epmoe::kernels
