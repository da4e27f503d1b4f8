#pragma once
// The GEMM of some rows and one 64-column panel of narrow weights: a chunk of K is decoded into the first cache,
// exactly, then row tiles pass over it. A scale multiplies its group's finished f32 sum, groups are added in ascending
// order, so no bit depends on the number of rows.
#include "experts/kernels/narrow_values.hpp"
#include "experts/kernels/words.hpp"

namespace epmoe::kernels {
namespace {

constexpr int64_t kChunkWords = 64;  // 128 bf16 values of K, whole groups; 16 KiB of a panel

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

template <class Words, NarrowValues Format, bool ZeroPoints = false>
inline void decoded_sums(const DecodedGemm& g) {
  constexpr int64_t kValues = Format == NarrowValues::f16 ? 1 : 2;  // in a word
  alignas(64) float wide[kPanelColumns];
  alignas(64) uint32_t chunk[kChunkWords * kPanelColumns];
  const int64_t words = g.k / kValues, group_words = g.group / kValues;
  for (int64_t begin = 0; begin < words; begin += kChunkWords) {
    const int64_t end = begin + kChunkWords < words ? begin + kChunkWords : words;
    decode_chunk<Format, ZeroPoints>(g, begin * kValues, end * kValues, chunk);
    if (g.groups == 1) {
      decoded_part<Words>(
          g, {chunk, begin, begin, end, begin == 0, end == words, group_scales<Format>(g, 0, wide), false});
      continue;
    }
    for (int64_t from = begin; from < end; from += group_words) {
      const int64_t to = from + group_words < end ? from + group_words : end;
      const float* scales = group_scales<Format>(g, from / group_words, wide);
      decoded_part<Words>(g, {chunk, begin, from, to, true, true, scales, from > 0});
    }
  }
}

void gemm_decoded(const DecodedGemm& g) {
  switch (g.values) {
    case NarrowValues::f16: decoded_sums<F32Words, NarrowValues::f16>(g); break;
    case NarrowValues::fp8_e4m3: decoded_sums<Bf16Words, NarrowValues::fp8_e4m3>(g); break;
    case NarrowValues::int4:
      if (g.zero_points != nullptr)
        decoded_sums<Bf16Words, NarrowValues::int4, true>(g);
      else
        decoded_sums<Bf16Words, NarrowValues::int4>(g);
      break;
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
