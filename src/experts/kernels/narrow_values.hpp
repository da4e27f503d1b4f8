#pragma once
// Narrow codes to words of bf16 or f32, exactly and without their scales: a portable form, and tables held in registers
// where the level permutes 16-bit lanes. Value 2 i + h of a packed word lies in half h of its bits, at place i there,
// so that one shift brings both values of a bf16 word to the bottom of its halves.
#include "experts/kernels/words.hpp"

namespace epmoe::kernels {
namespace {

/// The value of each lane's lowest code, in f32 and without its scale.
template <NarrowValues Format>
inline F32 narrow_value(const U32& code, const I32& zero) {
  if constexpr (Format == NarrowValues::int4) {
    return __builtin_convertvector((I32)(code & 15U) - zero, F32);
  } else if constexpr (Format == NarrowValues::mxfp4) {
    const U32 m = code & 7U;
    const F32 small = (F32)((m << 22) + 0x3f800000U) - splat(1.0F);  // 0 and 0.5
    const F32 magnitude = select((I32)m < 2, small, (F32)((m << 22) + 0x3f000000U));
    return (F32)((U32)magnitude | ((code & 8U) << 28));
  } else if constexpr (Format == NarrowValues::fp8_e4m3) {
    const U32 m = code & 0x7fU;
    const F32 small = (F32)((m << 20) + 0x3c800000U) - splat(0x1p-6F);
    F32 magnitude = select((I32)m < 8, small, (F32)((m << 20) + 0x3c000000U));
    magnitude = select((I32)m == 127, (F32)(U32{} + 0x7fc00000U), magnitude);
    return (F32)((U32)magnitude | ((code & 0x80U) << 24));
  } else {
    const U32 m = (code & 0x7fffU) << 13;
    const F32 small = (F32)(m + 0x38800000U) - splat(0x1p-14F);
    const U32 special = (U32)((I32)m >= 0x0f800000) & 0x38000000U;
    const F32 magnitude = select((I32)m < 0x00800000, small, (F32)(m + 0x38000000U + special));
    return (F32)((U32)magnitude | ((code & 0x8000U) << 16));
  }
}

/// Values of a packed 4-byte word.
template <NarrowValues Format>
constexpr int kPerWord = Format == NarrowValues::f16        ? 2
                         : Format == NarrowValues::fp8_e4m3 ? 4
                                                            : 8;

#if EPMOE_VECTOR_BYTES == 64 && defined(__AVX512BW__)

constexpr __mmask32 kAllLanes = ~__mmask32{0};  // g++ 12 warns of the forms without a mask

/// The upper half of a float's bits, which is all there is of a narrow value.
constexpr uint16_t upper_half(float value) {
  return static_cast<uint16_t>(__builtin_bit_cast(uint32_t, value) >> 16);
}
struct NibbleTable {
  alignas(64) uint16_t bits[32] = {};
};
constexpr NibbleTable nibble_table(NarrowValues format, bool zero_points) {
  constexpr float kE2m1[8] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  NibbleTable table;
  for (int i = 0; i < 32; ++i) {  // without zero points twice over: the bit above a nibble is its neighbour's
    float value = (i & 8) != 0 ? -kE2m1[i & 7] : kE2m1[i & 7];
    if (format == NarrowValues::int4) value = static_cast<float>(zero_points ? i - 16 : (i & 15) - 8);
    table.bits[i] = upper_half(value);
  }
  return table;
}
struct E4m3Table {
  alignas(64) uint16_t bits[128] = {};
};
constexpr E4m3Table e4m3_table() {
  E4m3Table table;
  for (int m = 0; m < 128; ++m) {
    const float subnormal = static_cast<float>(m) * 0x1p-9F;
    table.bits[m] = m == 127 ? 0x7fc0 : m < 8 ? upper_half(subnormal) : static_cast<uint16_t>((m << 4) + (120 << 7));
  }
  return table;
}

#if defined(__AVX512VBMI__)

/// The lower or upper bytes of the 128 magnitudes.
struct E4m3Bytes {
  alignas(64) uint8_t bytes[128] = {};
};
constexpr E4m3Bytes e4m3_bytes(int shift) {
  E4m3Bytes table;
  for (int m = 0; m < 128; ++m) table.bytes[m] = static_cast<uint8_t>(e4m3_table().bits[m] >> shift);
  return table;
}

/// Two lookups give the bytes of both words, which the compiler shares between the two.
inline U32 e4m3_word(const U32& packed, int i) {
  static constexpr E4m3Bytes kLow = e4m3_bytes(0), kHigh = e4m3_bytes(8);
  const __m512i code = (__m512i)packed;
  const U32 low =
      (U32)_mm512_permutex2var_epi8(_mm512_load_si512(kLow.bytes), code, _mm512_load_si512(kLow.bytes + 64));
  const U32 high =
      (U32)_mm512_permutex2var_epi8(_mm512_load_si512(kHigh.bytes), code, _mm512_load_si512(kHigh.bytes + 64)) |
      (packed & 0x80808080U);
  if (i == 0) return (low & 0x00ff00ffU) | (U32)_mm512_maskz_slli_epi16(kAllLanes, (__m512i)high, 8);
  return (U32)_mm512_maskz_srli_epi16(kAllLanes, (__m512i)low, 8) | (high & 0xff00ff00U);
}

#else

inline U32 e4m3_word(const U32& packed, int i) {
  static constexpr E4m3Table kTable = e4m3_table();
  const __m512i code = (__m512i)(packed >> (8 * i));
  const __m512i low =
      _mm512_permutex2var_epi16(_mm512_load_si512(kTable.bits), code, _mm512_load_si512(kTable.bits + 32));
  const __m512i high =
      _mm512_permutex2var_epi16(_mm512_load_si512(kTable.bits + 64), code, _mm512_load_si512(kTable.bits + 96));
  const __mmask32 large = _mm512_test_epi16_mask(code, _mm512_set1_epi16(0x40));
  const U32 magnitude = (U32)_mm512_mask_blend_epi16(large, low, high);
  return magnitude | (((U32)code << 8) & 0x80008000U);
}

#endif

/// Both values of word `i`, as bf16. `zero`: their zero point in every lane, 8 without.
template <NarrowValues Format, bool ZeroPoints>
inline U32 bf16_word(const U32& packed, int i, const I32& zero) {
  if constexpr (Format == NarrowValues::fp8_e4m3) {
    return e4m3_word(packed, i);
  } else if constexpr (ZeroPoints) {
    static constexpr NibbleTable kTable = nibble_table(Format, true);
    const U32 offset = (U32)(16 - zero);
    const U32 index = ((packed >> (4 * i)) & 0x000f000fU) + (offset | (offset << 16));
    return (U32)_mm512_maskz_permutexvar_epi16(kAllLanes, (__m512i)index, _mm512_load_si512(kTable.bits));
  } else {
    static constexpr NibbleTable kTable = nibble_table(Format, false);
    return (U32)_mm512_maskz_permutexvar_epi16(kAllLanes, (__m512i)(packed >> (4 * i)), _mm512_load_si512(kTable.bits));
  }
}

/// Whether decoding takes so few instructions and registers that every tile may do it again.
template <NarrowValues Format>
constexpr bool kQuickDecoding = Format == NarrowValues::int4 || Format == NarrowValues::mxfp4;

#else

template <NarrowValues>
constexpr bool kQuickDecoding = false;

#endif

inline I32 widen_bytes(const uint8_t* bytes) {
#if EPMOE_VECTOR_BYTES == 64 && defined(__AVX512BW__)
  return (I32)_mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
#else
  I32 wide{};
  for (int lane = 0; lane < kLanes; ++lane) wide[lane] = bytes[lane];
  return wide;
#endif
}

/// Words of the compute type out of packed ones: F32Words for f16, Bf16Words for the others.
template <NarrowValues Format, class Words, bool ZeroPoints>
struct Decoder {
  static constexpr NarrowValues kFormat = Format;
  static constexpr int kPacked = kPerWord<Format>;                     // values in a packed word
  static constexpr int kValues = Format == NarrowValues::f16 ? 1 : 2;  // in a word of the compute type
  static constexpr int kWords = kPacked / kValues;
  /// The zero points of a vector's columns for value k and its group; 8 without.
  static inline I32 zero(const DecodedGemm& g, int64_t k, int64_t column) {
    if constexpr (ZeroPoints) {
      const int64_t group = k / g.group < g.groups ? k / g.group : g.groups - 1;
      return widen_bytes(g.zero_points + group * kPanelColumns + column);
    }
    return I32{} + 8;
  }
  static inline typename Words::Weight word(const U32& packed, int i, const I32& zero) {
    if constexpr (Format == NarrowValues::f16) {
      return narrow_value<Format>(packed >> (16 * i), zero);
    } else {
#if EPMOE_VECTOR_BYTES == 64 && defined(__AVX512BW__)
      return Words::of(bf16_word<Format, ZeroPoints>(packed, i, zero));
#else
      const U32 code = packed >> (32 / kPacked * i);
      return {narrow_value<Format>(code, zero), narrow_value<Format>(code >> 16, zero)};
#endif
    }
  }
};

/// int4 codes in bytes, for int8 rows; their zero points are taken off the sums.
template <bool ZeroPoints>
struct Int4Decoder {
  static constexpr NarrowValues kFormat = NarrowValues::int4;
  static constexpr int kPacked = 8, kValues = 4, kWords = 2;
  static inline I32 zero(const DecodedGemm& g, int64_t k, int64_t column) {
    return Decoder<kFormat, Int4Words, ZeroPoints>::zero(g, k, column);
  }
  static inline typename Int4Words::Weight word(const U32& packed, int i, const I32&) {
    return Int4Words::of((packed >> (4 * i)) & 0x0f0f0f0fU);
  }
};

/// mxfp4 has E8M0 codes, the others f32.
template <NarrowValues Format>
constexpr int64_t scale_bytes = Format == NarrowValues::mxfp4 ? 1 : 4;

/// The scales of a group for a vector's columns.
template <NarrowValues Format>
inline F32 scale_vector(const DecodedGemm& g, int64_t group, int64_t column) {
  const char* at = static_cast<const char*>(g.scales) + (group * kPanelColumns + column) * scale_bytes<Format>;
  if constexpr (Format == NarrowValues::mxfp4) {
    const I32 code = widen_bytes(reinterpret_cast<const uint8_t*>(at));
    const F32 scale = select(code < 1, (F32)(U32{} + 0x00400000U), (F32)((U32)code << 23));
    return select(code == 255, (F32)(U32{} + 0x7fc00000U), scale);
  } else {
    return load<F32>(at);
  }
}

}  // namespace
}  // namespace epmoe::kernels
