#pragma once
// Narrow codes to words of bf16 or f32, exactly and without their scales: a portable form, and tables held in registers
// where the level permutes 16-bit lanes. Value 2 i + h of a packed word lies in half h of its bits, at place i there,
// so that one shift brings both values of a bf16 word to the bottom of its halves.
#include "experts/kernels/vectors.hpp"

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

/// Both values of word `i`, as bf16. `zero`: their zero point in every lane, 8 without.
template <NarrowValues Format, bool ZeroPoints>
inline U32 bf16_word(const U32& packed, int i, const I32& zero) {
  if constexpr (Format == NarrowValues::fp8_e4m3) {
    static constexpr E4m3Table kTable = e4m3_table();
    const __m512i code = (__m512i)(packed >> (8 * i));
    const __m512i low =
        _mm512_permutex2var_epi16(_mm512_load_si512(kTable.bits), code, _mm512_load_si512(kTable.bits + 32));
    const __m512i high =
        _mm512_permutex2var_epi16(_mm512_load_si512(kTable.bits + 64), code, _mm512_load_si512(kTable.bits + 96));
    const __mmask32 large = _mm512_test_epi16_mask(code, _mm512_set1_epi16(0x40));
    const U32 magnitude = (U32)_mm512_mask_blend_epi16(large, low, high);
    return magnitude | (((U32)code << 8) & 0x80008000U);
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

#else

/// Both values of word `i`, as bf16. `zero`: their zero point in every lane, 8 without.
template <NarrowValues Format, bool ZeroPoints>
inline U32 bf16_word(const U32& packed, int i, const I32& zero) {
  const U32 code = packed >> (32 / kPerWord<Format> * i);
  const U32 low = (U32)narrow_value<Format>(code, zero), high = (U32)narrow_value<Format>(code >> 16, zero);
  return (low >> 16) | (high & 0xffff0000U);
}

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

/// Values [begin, end) of K to words of the compute type, [words][64].
template <NarrowValues Format, bool ZeroPoints>
inline void decode_chunk(const DecodedGemm& g, int64_t begin, int64_t end, uint32_t* out) {
  constexpr int kPacked = kPerWord<Format>;
  for (int64_t k = begin; k < end; k += kPacked) {
    const char* w = static_cast<const char*>(g.w) + k / kPacked * kPanelWordBytes;
    const uint8_t* zero_points = nullptr;
    if constexpr (ZeroPoints) {
      const int64_t group = k / g.group < g.groups ? k / g.group : g.groups - 1;
      zero_points = g.zero_points + group * kPanelColumns;
    }
    for (int64_t n = 0; n < kPanelColumns; n += kLanes) {
      const U32 packed = load<U32>(w + n * 4);
      I32 zero = I32{} + 8;
      if constexpr (ZeroPoints) zero = widen_bytes(zero_points + n);
      if constexpr (Format == NarrowValues::f16) {
        store(out + (k - begin) * kPanelColumns + n, narrow_value<Format>(packed, zero));
        store(out + (k - begin + 1) * kPanelColumns + n, narrow_value<Format>(packed >> 16, zero));
      } else {
        EPMOE_UNROLL
        for (int i = 0; i < kPacked / 2; ++i)
          store(out + ((k - begin) / 2 + i) * kPanelColumns + n, bf16_word<Format, ZeroPoints>(packed, i, zero));
      }
    }
  }
}

/// The scales of a group as f32 [64]: where they lie, or from E8M0 into `wide`.
template <NarrowValues Format>
inline const float* group_scales(const DecodedGemm& g, int64_t group, float* wide) {
  if constexpr (Format == NarrowValues::f16) {
    return nullptr;
  } else if constexpr (Format == NarrowValues::mxfp4) {
    const uint8_t* codes = static_cast<const uint8_t*>(g.scales) + group * kPanelColumns;
    for (int64_t n = 0; n < kPanelColumns; n += kLanes) {
      const I32 code = widen_bytes(codes + n);
      const F32 scale = select(code < 1, (F32)(U32{} + 0x00400000U), (F32)((U32)code << 23));
      store(wide + n, select(code == 255, (F32)(U32{} + 0x7fc00000U), scale));
    }
    return wide;
  } else {
    return static_cast<const float*>(g.scales) + group * kPanelColumns;
  }
}

}  // namespace
}  // namespace epmoe::kernels
