#pragma once
// The compiler's vector types for one ISA level, for the kernels_*.cpp files, which define before including this
//   EPMOE_VECTOR_BYTES      bytes of a vector register
//   EPMOE_VECTOR_REGISTERS  how many of them there are
// and are compiled with that level's flags. Everything here and in the files built on it has internal linkage.
#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "experts/kernels/kernel_set.hpp"

#if defined(__clang__)
#define EPMOE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define EPMOE_UNROLL _Pragma("GCC unroll 16")
#endif

namespace epmoe::kernels {
namespace {

constexpr int kLanes = EPMOE_VECTOR_BYTES / 4;
using F32 [[gnu::vector_size(EPMOE_VECTOR_BYTES)]] = float;
using I32 [[gnu::vector_size(EPMOE_VECTOR_BYTES)]] = int32_t;
using U32 [[gnu::vector_size(EPMOE_VECTOR_BYTES)]] = uint32_t;
using I16 [[gnu::vector_size(EPMOE_VECTOR_BYTES)]] = int16_t;
using U16 [[gnu::vector_size(EPMOE_VECTOR_BYTES)]] = uint16_t;
using HalfU16 [[gnu::vector_size(EPMOE_VECTOR_BYTES / 2)]] = uint16_t;
using QuarterU8 [[gnu::vector_size(EPMOE_VECTOR_BYTES / 4)]] = uint8_t;

template <class V>
inline V load(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class V>
inline void store(void* p, const V& v) {
  __builtin_memcpy(p, &v, sizeof v);
}
inline U32 splat_word(const void* p) {
  uint32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return U32{} + word;
}
inline F32 splat(float value) {
  uint32_t word;
  __builtin_memcpy(&word, &value, sizeof word);
  return (F32)(U32{} + word);
}
inline F32 select(const I32& mask, const F32& yes, const F32& no) {
  return (F32)(((U32)mask & (U32)yes) | (~(U32)mask & (U32)no));
}

/// acc + a * b, rounded once where the level has such an instruction.
inline F32 multiply_add(const F32& acc, const F32& a, const F32& b) {
#if EPMOE_VECTOR_BYTES == 64 && defined(__AVX512F__)
  return (F32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)acc);
#elif EPMOE_VECTOR_BYTES == 32 && defined(__FMA__)
  return (F32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)acc);
#elif EPMOE_VECTOR_BYTES == 16 && defined(__aarch64__)
  return (F32)vfmaq_f32((float32x4_t)acc, (float32x4_t)a, (float32x4_t)b);
#else
  return acc + a * b;
#endif
}
#if (EPMOE_VECTOR_BYTES == 64 && defined(__AVX512F__)) || (EPMOE_VECTOR_BYTES == 32 && defined(__FMA__)) || \
    (EPMOE_VECTOR_BYTES == 16 && defined(__aarch64__))
constexpr Rounding kMultiplyAdd = Rounding::fused;
#else
constexpr Rounding kMultiplyAdd = Rounding::separate;
#endif

/// Each 32-bit lane: a[0] * b[0] + a[1] * b[1] of its two 16-bit values.
inline I32 multiply_pairs(const I16& a, const I16& b) {
#if EPMOE_VECTOR_BYTES == 64 && defined(__AVX512BW__)
  return (I32)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif EPMOE_VECTOR_BYTES == 32 && defined(__AVX2__)
  return (I32)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif EPMOE_VECTOR_BYTES == 16 && defined(__SSE2__)
  return (I32)_mm_madd_epi16((__m128i)a, (__m128i)b);
#elif EPMOE_VECTOR_BYTES == 16 && defined(__aarch64__)
  const int32x4_t low = vmull_s16(vget_low_s16((int16x8_t)a), vget_low_s16((int16x8_t)b));
  const int32x4_t high = vmull_high_s16((int16x8_t)a, (int16x8_t)b);
  return (I32)vpaddq_s32(low, high);
#else
  const I32 first = ((I32)((U32)a << 16) >> 16) * ((I32)((U32)b << 16) >> 16);
  return first + ((I32)a >> 16) * ((I32)b >> 16);
#endif
}

}  // namespace
}  // namespace epmoe::kernels
