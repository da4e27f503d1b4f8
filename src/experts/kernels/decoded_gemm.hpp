#pragma once
// The GEMM of some rows and one 64-column panel of narrow weights: a chunk of K is decoded into the first cache,
// exactly, then row tiles pass over it. A scale multiplies its group's finished f32 sum, groups are added in ascending
// order, so no bit depends on the number of rows.
#include "experts/kernels/words.hpp"

namespace epmoe::kernels {
namespace {

constexpr int64_t kChunkWords = 64;  // 128 bf16 values of K, whole groups; 16 KiB of a panel

/// One value of each lane's packed word, in f32 and without its scale.
template <NarrowValues Format>
inline F32 narrow_value(const U32& packed, int j, const I32& zero) {
  if constexpr (Format == NarrowValues::int4) {
    return __builtin_convertvector((I32)((packed >> (4 * j)) & 15U) - zero, F32);
  } else if constexpr (Format == NarrowValues::mxfp4) {
    const U32 code = packed >> (4 * j), m = code & 7U;
    const F32 small = (F32)((m << 22) + 0x3f800000U) - splat(1.0F);  // 0 and 0.5
    const F32 magnitude = select((I32)m < 2, small, (F32)((m << 22) + 0x3f000000U));
    return (F32)((U32)magnitude | ((code & 8U) << 28));
  } else if constexpr (Format == NarrowValues::fp8_e4m3) {
    const U32 code = packed >> (8 * j), m = code & 0x7fU;
    const F32 small = (F32)((m << 20) + 0x3c800000U) - splat(0x1p-6F);
    F32 magnitude = select((I32)m < 8, small, (F32)((m << 20) + 0x3c000000U));
    magnitude = select((I32)m == 127, (F32)(U32{} + 0x7fc00000U), magnitude);
    return (F32)((U32)magnitude | ((code & 0x80U) << 24));
  } else {
    const U32 code = packed >> (16 * j), m = (code & 0x7fffU) << 13;
    const F32 small = (F32)(m + 0x38800000U) - splat(0x1p-14F);
    const U32 special = (U32)((I32)m >= 0x0f800000) & 0x38000000U;
    const F32 magnitude = select((I32)m < 0x00800000, small, (F32)(m + 0x38000000U + special));
    return (F32)((U32)magnitude | ((code & 0x8000U) << 16));
  }
}

template <NarrowValues Format>
constexpr int kPerWord = Format == NarrowValues::f16        ? 2
                         : Format == NarrowValues::fp8_e4m3 ? 4
                                                            : 8;

/// Values [begin, end) of K to words of the compute type, [words][64].
template <NarrowValues Format>
inline void decode_chunk(const DecodedGemm& g, int64_t begin, int64_t end, uint32_t* out) {
  constexpr int kPacked = kPerWord<Format>;
  for (int64_t k = begin; k < end; k += kPacked) {
    const char* w = static_cast<const char*>(g.w) + k / kPacked * kPanelWordBytes;
    const int64_t group = k / g.group < g.groups ? k / g.group : g.groups - 1;
    for (int64_t n = 0; n < kPanelColumns; n += kLanes) {
      const U32 packed = load<U32>(w + n * 4);
      I32 zero = I32{} + 8;
      if (g.zero_points != nullptr)
        for (int lane = 0; lane < kLanes; ++lane) zero[lane] = g.zero_points[group * kPanelColumns + n + lane];
      if constexpr (Format == NarrowValues::f16) {
        EPMOE_UNROLL
        for (int j = 0; j < kPacked; ++j)
          store(out + (k - begin + j) * kPanelColumns + n, narrow_value<Format>(packed, j, zero));
      } else {
        EPMOE_UNROLL
        for (int j = 0; j < kPacked; j += 2) {
          const U32 low = (U32)narrow_value<Format>(packed, j, zero),
                    high = (U32)narrow_value<Format>(packed, j + 1, zero);
          store(out + ((k - begin + j) / 2) * kPanelColumns + n, (low >> 16) | (high & 0xffff0000U));
        }
      }
    }
  }
}

/// Words [begin, end) of one group, of which the chunk at `w` starts at word `chunk`. `first`, `last`: of its group.
struct GroupPart {
  const uint32_t* w;
  int64_t chunk, begin, end;
  bool first, last;
  const float* scales;  // of the group, or null
  bool add;             // the scaled sum joins what C holds; else C is parked or replaced
};

template <class Words, int Rows>
inline void decoded_tile(const DecodedGemm& g, int64_t row, const GroupPart& part) {
  constexpr int kVectors = EPMOE_VECTOR_REGISTERS < 32 ? 2 : 4;
  for (int64_t column = 0; column < kPanelColumns; column += kVectors * kLanes) {
    F32 acc[Rows][kVectors];
    float* c = g.c + row * g.c_stride + column;
    EPMOE_UNROLL
    for (int r = 0; r < Rows; ++r) {
      EPMOE_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[r][v] = part.first ? F32{} : load<F32>(c + r * g.c_stride + v * kLanes);
    }
    const uint32_t* w = part.w + (part.begin - part.chunk) * kPanelColumns + column;
    const char* a[Rows];
    EPMOE_UNROLL
    for (int r = 0; r < Rows; ++r) a[r] = static_cast<const char*>(g.a[row + r]);
    for (int64_t word = part.begin; word < part.end; ++word, w += kPanelColumns) {
      typename Words::Weight weight[kVectors];
      EPMOE_UNROLL
      for (int v = 0; v < kVectors; ++v) weight[v] = Words::weight(w + v * kLanes);
      EPMOE_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const typename Words::Row value = Words::row(a[r] + word * 4);
        EPMOE_UNROLL
        for (int v = 0; v < kVectors; ++v) Words::add(acc[r][v], value, weight[v]);
      }
    }
    EPMOE_UNROLL
    for (int r = 0; r < Rows; ++r) {
      EPMOE_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        float* to = c + r * g.c_stride + v * kLanes;
        F32 sum = acc[r][v];
        if (part.last && part.scales != nullptr) sum = sum * load<F32>(part.scales + column + v * kLanes);
        store(to, part.add ? load<F32>(to) + sum : sum);
      }
    }
  }
}

template <class Words>
inline void decoded_part(const DecodedGemm& g, const GroupPart& part) {
  int64_t row = 0;
  for (; row + 6 <= g.rows; row += 6) decoded_tile<Words, 6>(g, row, part);
  switch (g.rows - row) {
    case 1: decoded_tile<Words, 1>(g, row, part); break;
    case 2: decoded_tile<Words, 2>(g, row, part); break;
    case 3: decoded_tile<Words, 3>(g, row, part); break;
    case 4: decoded_tile<Words, 4>(g, row, part); break;
    case 5: decoded_tile<Words, 5>(g, row, part); break;
    default: break;
  }
}

template <class Words, NarrowValues Format>
inline void decoded_sums(const DecodedGemm& g) {
  constexpr int64_t kValues = Format == NarrowValues::f16 ? 1 : 2;  // in a word
  alignas(64) uint32_t chunk[kChunkWords * kPanelColumns];
  const int64_t words = g.k / kValues, group_words = g.group / kValues;
  for (int64_t begin = 0; begin < words; begin += kChunkWords) {
    const int64_t end = begin + kChunkWords < words ? begin + kChunkWords : words;
    decode_chunk<Format>(g, begin * kValues, end * kValues, chunk);
    if (g.groups == 1) {
      decoded_part<Words>(g, {chunk, begin, begin, end, begin == 0, end == words, g.scales, false});
      continue;
    }
    for (int64_t from = begin; from < end; from += group_words) {
      const int64_t to = from + group_words < end ? from + group_words : end;
      decoded_part<Words>(
          g, {chunk, begin, from, to, true, true, g.scales + from / group_words * kPanelColumns, from > 0});
    }
  }
}

void gemm_decoded(const DecodedGemm& g) {
  switch (g.values) {
    case NarrowValues::f16: decoded_sums<F32Words, NarrowValues::f16>(g); break;
    case NarrowValues::fp8_e4m3: decoded_sums<Bf16Words, NarrowValues::fp8_e4m3>(g); break;
    case NarrowValues::int4: decoded_sums<Bf16Words, NarrowValues::int4>(g); break;
    case NarrowValues::mxfp4: decoded_sums<Bf16Words, NarrowValues::mxfp4>(g); break;
  }
  if (g.bias == nullptr) return;
  for (int64_t r = 0; r < g.rows; ++r)
    for (int64_t n = 0; n < kPanelColumns; n += kLanes) {
      float* c = g.c + r * g.c_stride + n;
      store(c, load<F32>(c) + load<F32>(g.bias + n));
    }
}

}  // namespace
}  // namespace epmoe::kernels
