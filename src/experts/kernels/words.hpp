#pragma once
// How one word of a row meets one word of each column, for each number format: the inner step of panel_gemm.hpp. The
// instructions that a level was compiled for decide.
#include "experts/kernels/vectors.hpp"

namespace epmoe::kernels {
namespace {

struct F32Words {
  using Accumulator = F32;
  using Weight = F32;
  using Row = F32;
  static constexpr Rounding kRounding = kMultiplyAdd;
  static inline Weight weight(const void* p) { return load<F32>(p); }
  static inline Row row(const void* p) { return (F32)splat_word(p); }
  static inline void add(F32& acc, const Row& a, const Weight& w) { acc = multiply_add(acc, a, w); }
};

#if EPMOE_VECTOR_BYTES == 64 && defined(__AVX512BF16__)

struct Bf16Words {
  using Accumulator = F32;
  using Weight = I32;
  using Row = I32;
  static constexpr Rounding kRounding = Rounding::pairs;
  static inline Weight of(const U32& word) { return (I32)word; }
  static inline Weight weight(const void* p) { return load<I32>(p); }
  static inline Row row(const void* p) { return (I32)splat_word(p); }
  static inline void add(F32& acc, const Row& a, const Weight& w) {
    acc = (F32)_mm512_dpbf16_ps((__m512)acc, (__m512bh)a, (__m512bh)w);
  }
};

#else

struct Bf16Words {  // two values a word; a product of two bf16 is exact in f32
  using Accumulator = F32;
  struct Pair {
    F32 first, second;
  };
  using Weight = Pair;
  using Row = Pair;
  static constexpr Rounding kRounding = kMultiplyAdd;
  static inline Pair of(const U32& word) { return {(F32)(word << 16), (F32)(word & 0xffff0000U)}; }
  static inline Weight weight(const void* p) { return of(load<U32>(p)); }
  static inline Row row(const void* p) { return of(splat_word(p)); }
  static inline void add(F32& acc, const Row& a, const Weight& w) {
    acc = multiply_add(acc, a.first, w.first);
    acc = multiply_add(acc, a.second, w.second);
  }
};

#endif

#if (EPMOE_VECTOR_BYTES == 64 && defined(__AVX512VNNI__)) || (EPMOE_VECTOR_BYTES == 32 && defined(__AVXVNNI__))

struct Int8Words {  // rows unsigned (value + 128), columns signed
  using Accumulator = I32;
  using Weight = I32;
  using Row = I32;
  static constexpr bool kUnsignedRows = true;
  static inline Weight weight(const void* p) { return load<I32>(p); }
  static inline Row row(const void* p) { return (I32)splat_word(p); }
  static inline void add(I32& acc, const Row& a, const Weight& w) {
#if EPMOE_VECTOR_BYTES == 64
    acc = (I32)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)a, (__m512i)w);
#else
    acc = (I32)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)a, (__m256i)w);
#endif
  }
};

#else

struct Int8Words {  // four values a word, as two vectors of 16 bits: bytes 0 and 2, bytes 1 and 3
  using Accumulator = I32;
  struct Pair {
    I16 even, odd;
  };
  using Weight = Pair;
  using Row = Pair;
  static constexpr bool kUnsignedRows = false;
  static inline Pair widen(const U32& word) { return {(I16)((U16)word << 8) >> 8, (I16)word >> 8}; }
  static inline Weight weight(const void* p) { return widen(load<U32>(p)); }
  static inline Row row(const void* p) { return widen(splat_word(p)); }
  static inline void add(I32& acc, const Row& a, const Weight& w) {
    acc += multiply_pairs(a.even, w.even);
    acc += multiply_pairs(a.odd, w.odd);
  }
};

#endif

/// int4 codes in bytes, unsigned, meet signed rows.
struct Int4Words {
  using Accumulator = I32;
#if (EPMOE_VECTOR_BYTES == 64 && (defined(__AVX512BW__))) || (EPMOE_VECTOR_BYTES == 32 && defined(__AVX2__)) || \
    (EPMOE_VECTOR_BYTES == 16 && defined(__ARM_FEATURE_DOTPROD))
  using Weight = I32;
  using Row = I32;
  static inline Weight of(const U32& codes) { return (I32)codes; }
  static inline Row row(const void* p) { return (I32)splat_word(p); }
  static inline void add(I32& acc, const Row& a, const Weight& w) {
#if EPMOE_VECTOR_BYTES == 64 && defined(__AVX512VNNI__)
    acc = (I32)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, (__m512i)a);
#elif EPMOE_VECTOR_BYTES == 32 && defined(__AVXVNNI__)
    acc = (I32)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)w, (__m256i)a);
#elif EPMOE_VECTOR_BYTES == 64  // a pair's sum is at most 2 * 15 * 128
    acc += multiply_pairs((I16)_mm512_maddubs_epi16((__m512i)w, (__m512i)a), I16{} + 1);
#elif EPMOE_VECTOR_BYTES == 32
    acc += multiply_pairs((I16)_mm256_maddubs_epi16((__m256i)w, (__m256i)a), I16{} + 1);
#else
    acc = (I32)vdotq_s32((int32x4_t)acc, (int8x16_t)w, (int8x16_t)a);
#endif
  }
#else
  using Weight = Int8Words::Pair;
  using Row = Int8Words::Pair;
  static inline Weight of(const U32& codes) { return {(I16)(codes & 0x00ff00ffU), (I16)((codes >> 8) & 0x00ff00ffU)}; }
  static inline Row row(const void* p) { return Int8Words::widen(splat_word(p)); }
  static inline void add(I32& acc, const Row& a, const Weight& w) { Int8Words::add(acc, a, w); }
#endif
};

}  // namespace
}  // namespace epmoe::kernels
