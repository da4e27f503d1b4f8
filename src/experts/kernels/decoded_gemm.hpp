#pragma once
// The GEMM of some rows and one 64-column panel of narrow weights. K is summed in parts: a group of weights that share
// a scale, or 128 values where groups are longer. A part's sum starts from zero and joins C, scaled if the part is a
// group, in ascending order, so no bit depends on the number of rows. Few rows decode in registers as they go; more
// share a part that is decoded into the first cache.
#include "experts/kernels/narrow_values.hpp"
#include "experts/kernels/tile_shape.hpp"
#include "experts/kernels/words.hpp"

namespace epmoe::kernels {
namespace {

constexpr int64_t kRowsInRegisters = 4;  // with more rows, slow decoding is better done once for all
constexpr int kPanelVectors = static_cast<int>(kPanelColumns) / kLanes;

/// Values [begin, end) of K.
struct Part {
  int64_t begin, end;
};

/// The panel's parts, one after the other.
inline int64_t part_size(const DecodedGemm& g) {
  return g.group < kPartValues ? g.group : kPartValues;
}
inline Part part_at(const DecodedGemm& g, int64_t begin) {
  const int64_t end = begin + part_size(g);
  return {begin, end < g.k ? end : g.k};
}

/// The scales of a part that is a group; they lie in a stream of their own, so those of a later one are fetched.
template <NarrowValues Format>
inline void fetch_scales(const DecodedGemm& g, const Part& part) {
  constexpr int64_t kGroupsAhead = 4, kBytes = scale_bytes<Format> * kPanelColumns;
  if (g.groups == 1) return;
  const char* scales = static_cast<const char*>(g.scales) + (part.begin / g.group + kGroupsAhead) * kBytes;
  for (int64_t line = 0; line < kBytes; line += 64) __builtin_prefetch(scales + line, 0, 3);
}

/// C (+)= a part's sums, scaled if the part is a group.
template <class Decode, int Rows, int Vectors>
inline void join(const DecodedGemm& g, const Part& part, int64_t row, int64_t column,
                 const F32 (&sums)[Rows][Vectors]) {
  F32 scale[Vectors];
  const bool scaled = g.groups > 1;
  EPMOE_UNROLL
  for (int v = 0; v < Vectors; ++v)
    scale[v] = scaled ? scale_vector<Decode::kFormat>(g, part.begin / g.group, column + v * kLanes) : splat(1.0F);
  EPMOE_UNROLL
  for (int r = 0; r < Rows; ++r) {
    float* c = g.c + (row + r) * g.c_stride + column;
    EPMOE_UNROLL
    for (int v = 0; v < Vectors; ++v) {
      const F32 sum = sums[r][v] * scale[v];
      store(c + v * kLanes, part.begin == 0 ? sum : load<F32>(c + v * kLanes) + sum);
    }
  }
}

/// Sums of codes and int8 rows lose the zero point times the row's sum. All of it is exact in f32: a part has at most
/// 128 products of at most 15 * 128.
template <class Decode, int Rows, int Vectors>
inline void join(const DecodedGemm& g, const Part& part, int64_t row, int64_t column,
                 const I32 (&sums)[Rows][Vectors]) {
  F32 zero[Vectors], floats[Rows][Vectors];
  EPMOE_UNROLL
  for (int v = 0; v < Vectors; ++v)
    zero[v] = __builtin_convertvector(Decode::zero(g, part.begin, column + v * kLanes), F32);
  EPMOE_UNROLL
  for (int r = 0; r < Rows; ++r) {
    int32_t row_sum;
    __builtin_memcpy(&row_sum, static_cast<const int8_t*>(g.a[row + r]) + g.k + part.begin / part_size(g) * 4, 4);
    const F32 offset = splat(static_cast<float>(row_sum));
    EPMOE_UNROLL
    for (int v = 0; v < Vectors; ++v) floats[r][v] = __builtin_convertvector(sums[r][v], F32) - zero[v] * offset;
  }
  join<Decode>(g, part, row, column, floats);
}

/// Packed memory as far ahead of a part as memory needs to answer, and past the parts that are read side by side: of
/// this panel, then of the next; null for none.
template <class Decode>
inline const char* ahead_of(const DecodedGemm& g, const Part& part, int side_by_side) {
  constexpr int64_t kLeastBytes = 8192;
  const int64_t bytes = g.k / Decode::kPacked * kPanelWordBytes;
  const int64_t read = side_by_side * (part.end - part.begin) / Decode::kPacked * kPanelWordBytes;
  const int64_t at = part.begin / Decode::kPacked * kPanelWordBytes + (read < kLeastBytes ? kLeastBytes : read);
  if (at < bytes) return static_cast<const char*>(g.w) + at;
  return g.next == nullptr || at - bytes >= bytes ? nullptr : static_cast<const char*>(g.next) + (at - bytes);
}

/// `Rows` rows and `Parts` equal parts side by side, since one row has too few sums to hide the latency of an addition.
/// `fetch`: memory to fetch as far as the parts reach, for each part, or nulls.
template <class Words, class Decode, int Rows, int Parts>
[[gnu::noinline]] void sum_in_registers(const DecodedGemm& g, const Part& first, int64_t row,
                                        const char* const (&fetch)[Parts]) {
  constexpr int kVectors = tile_vectors(Rows * Parts);
  const int64_t length = first.end - first.begin, steps = length / Decode::kPacked;
  for (int64_t column = 0; column < kPanelColumns; column += kVectors * kLanes) {
    typename Words::Accumulator acc[Parts][Rows][kVectors] = {};
    const char* w[Parts];
    const char* a[Parts][Rows];
    I32 zero[Parts][kVectors];
    EPMOE_UNROLL
    for (int p = 0; p < Parts; ++p) {
      const int64_t begin = first.begin + p * length;
      w[p] = static_cast<const char*>(g.w) + begin / Decode::kPacked * kPanelWordBytes + column * 4;
      EPMOE_UNROLL
      for (int r = 0; r < Rows; ++r) a[p][r] = static_cast<const char*>(g.a[row + r]) + begin / Decode::kValues * 4;
      EPMOE_UNROLL
      for (int v = 0; v < kVectors; ++v) zero[p][v] = Decode::zero(g, begin, column + v * kLanes);
    }
    for (int64_t step = 0; step < steps; ++step) {
      EPMOE_UNROLL
      for (int p = 0; p < Parts; ++p) {
        if (column == 0 && fetch[p] != nullptr) {
          EPMOE_UNROLL
          for (int line = 0; line < kPanelWordBytes; line += 64)
            __builtin_prefetch(fetch[p] + step * kPanelWordBytes + line, 0, 3);
        }
        U32 packed[kVectors];
        EPMOE_UNROLL
        for (int v = 0; v < kVectors; ++v)
          packed[v] = load<U32>(w[p] + step * kPanelWordBytes + v * EPMOE_VECTOR_BYTES);
        EPMOE_UNROLL
        for (int i = 0; i < Decode::kWords; ++i) {
          typename Words::Row value[Rows];
          EPMOE_UNROLL
          for (int r = 0; r < Rows; ++r) value[r] = Words::row(a[p][r] + (step * Decode::kWords + i) * 4);
          EPMOE_UNROLL
          for (int v = 0; v < kVectors; ++v) {
            const typename Words::Weight weight = Decode::word(packed[v], i, zero[p][v]);
            EPMOE_UNROLL
            for (int r = 0; r < Rows; ++r) Words::add(acc[p][r][v], value[r], weight);
          }
        }
      }
    }
    EPMOE_UNROLL
    for (int p = 0; p < Parts; ++p) {
      const int64_t begin = first.begin + p * length;
      join<Decode>(g, {begin, begin + length}, row, column, acc[p]);
    }
  }
}

template <class Words, class Decode, int Rows>
inline void pairs_of_parts(const DecodedGemm& g) {
  for (int64_t begin = 0; begin < g.k;) {
    const Part part = part_at(g, begin), second = part_at(g, part.end);
    fetch_scales<Decode::kFormat>(g, part);
    if (second.end - second.begin == part.end - part.begin) {
      fetch_scales<Decode::kFormat>(g, second);
      sum_in_registers<Words, Decode, Rows, 2>(g, part, 0,
                                               {ahead_of<Decode>(g, part, 2), ahead_of<Decode>(g, second, 2)});
      begin = second.end;
    } else {
      sum_in_registers<Words, Decode, Rows, 1>(g, part, 0, {ahead_of<Decode>(g, part, 1)});
      begin = part.end;
    }
  }
}

template <class Words, class Decode>
inline void tiles_in_registers(const DecodedGemm& g) {
  for (int64_t begin = 0; begin < g.k;) {
    const Part part = part_at(g, begin);
    fetch_scales<Decode::kFormat>(g, part);
    const char* const ahead = ahead_of<Decode>(g, part, 1);
    for_row_tiles(g.rows, [&](auto rows, int64_t row) {
      sum_in_registers<Words, Decode, rows.value, 1>(g, part, row, {row == 0 ? ahead : nullptr});
    });
    begin = part.end;
  }
}

/// A part's words as they are multiplied.
template <class Words, class Decode>
struct DecodedPart {
  static constexpr int kWords = static_cast<int>(kPartValues) / Decode::kValues;
  alignas(64) typename Words::Weight word[kWords][kPanelVectors];

  [[gnu::noinline]] void decode(const DecodedGemm& g, const Part& part) {
    const char* w = static_cast<const char*>(g.w) + part.begin / Decode::kPacked * kPanelWordBytes;
    const int64_t steps = (part.end - part.begin) / Decode::kPacked;
    I32 zero[kPanelVectors];
    for (int v = 0; v < kPanelVectors; ++v) zero[v] = Decode::zero(g, part.begin, v * kLanes);
    for (int64_t step = 0; step < steps; ++step)
      for (int v = 0; v < kPanelVectors; ++v) {
        const U32 packed = load<U32>(w + step * kPanelWordBytes + v * EPMOE_VECTOR_BYTES);
        EPMOE_UNROLL
        for (int i = 0; i < Decode::kWords; ++i) word[step * Decode::kWords + i][v] = Decode::word(packed, i, zero[v]);
      }
  }
};

/// `fetch`: packed memory that is wanted after this part; a part's worth of it is fetched if `Fetch`.
/// Not inlined: the compiler would keep the decoder's tables in registers that the sums need.
template <class Words, class Decode, int Rows, bool Fetch>
[[gnu::noinline]] void sum_tile(const DecodedGemm& g, const Part& part, const DecodedPart<Words, Decode>& decoded,
                                int64_t row, int first_vector, const char* fetch) {
  constexpr int kVectors = tile_vectors(Rows);
  constexpr int64_t kFetchBytes = kPanelWordBytes / Decode::kWords;  // packed bytes of one word
  typename Words::Accumulator acc[Rows][kVectors] = {};
  const char* a[Rows];
  EPMOE_UNROLL
  for (int r = 0; r < Rows; ++r) a[r] = static_cast<const char*>(g.a[row + r]) + part.begin / Decode::kValues * 4;
  const int64_t words = (part.end - part.begin) / Decode::kValues;
  for (int64_t k = 0; k < words; ++k) {
    if constexpr (Fetch) {
      EPMOE_UNROLL
      for (int64_t line = 0; line < kFetchBytes; line += 64) __builtin_prefetch(fetch + line, 0, 2);
      fetch += kFetchBytes;
    }
    typename Words::Weight weight[kVectors];
    EPMOE_UNROLL
    for (int v = 0; v < kVectors; ++v) weight[v] = decoded.word[k][first_vector + v];
    EPMOE_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const typename Words::Row value = Words::row(a[r] + k * 4);
      EPMOE_UNROLL
      for (int v = 0; v < kVectors; ++v) Words::add(acc[r][v], value, weight[v]);
    }
  }
  join<Decode>(g, part, row, first_vector * kLanes, acc);
}

template <class Words, class Decode>
inline void tiles_of_decoded(const DecodedGemm& g) {
  DecodedPart<Words, Decode> decoded;
  for (int64_t begin = 0; begin < g.k;) {
    const Part part = part_at(g, begin);
    fetch_scales<Decode::kFormat>(g, part);
    decoded.decode(g, part);
    const char* const ahead = ahead_of<Decode>(g, part, 1);
    for_row_tiles(g.rows, [&](auto rows, int64_t row) {
      for (int v = 0; v < kPanelVectors; v += tile_vectors(rows.value))
        if (row == 0 && v == 0 && ahead != nullptr)
          sum_tile<Words, Decode, rows.value, true>(g, part, decoded, row, v, ahead);
        else
          sum_tile<Words, Decode, rows.value, false>(g, part, decoded, row, v, nullptr);
    });
    begin = part.end;
  }
}

/// What is left once all parts have joined: the scale that all of K shares, those of int8 rows, and the bias.
template <NarrowValues Format>
inline void finish(const DecodedGemm& g) {
  const bool scaled = g.groups == 1 && g.scales != nullptr;
  if (!scaled && g.row_scale == nullptr && g.bias == nullptr) return;
  for (int64_t n = 0; n < kPanelColumns; n += kLanes) {
    const F32 scale = scaled ? scale_vector<Format>(g, 0, n) : splat(1.0F);
    for (int64_t r = 0; r < g.rows; ++r) {
      float* c = g.c + r * g.c_stride + n;
      F32 sum = load<F32>(c);
      if (scaled) sum = sum * scale;
      if (g.row_scale != nullptr) sum = sum * splat(g.row_scale[r]);
      if (g.bias != nullptr) sum = sum + load<F32>(g.bias + n);
      store(c, sum);
    }
  }
}

template <class Words, class Decode, bool Quick>
inline void sum_parts(const DecodedGemm& g) {
  if (g.rows == 1)
    pairs_of_parts<Words, Decode, 1>(g);
  else if (g.rows == 2)
    pairs_of_parts<Words, Decode, 2>(g);
  else if (Quick || g.rows <= kRowsInRegisters)
    tiles_in_registers<Words, Decode>(g);
  else if constexpr (!Quick)
    tiles_of_decoded<Words, Decode>(g);
  finish<Decode::kFormat>(g);
}

template <class Words, NarrowValues Format, bool ZeroPoints = false>
inline void sum_floats(const DecodedGemm& g) {
  sum_parts<Words, Decoder<Format, Words, ZeroPoints>, kQuickDecoding<Format>>(g);
}

void gemm_int4(const DecodedGemm& g) {
  const bool zero_points = g.zero_points != nullptr;
  if (g.row_scale != nullptr)
    zero_points ? sum_parts<Int4Words, Int4Decoder<true>, true>(g) : sum_parts<Int4Words, Int4Decoder<false>, true>(g);
  else
    zero_points ? sum_floats<Bf16Words, NarrowValues::int4, true>(g) : sum_floats<Bf16Words, NarrowValues::int4>(g);
}

void gemm_decoded(const DecodedGemm& g) {
  switch (g.values) {
    case NarrowValues::f16: sum_floats<F32Words, NarrowValues::f16>(g); break;
    case NarrowValues::fp8_e4m3: sum_floats<Bf16Words, NarrowValues::fp8_e4m3>(g); break;
    case NarrowValues::int4: gemm_int4(g); break;
    case NarrowValues::mxfp4: sum_floats<Bf16Words, NarrowValues::mxfp4>(g); break;
  }
}

}  // namespace
}  // namespace epmoe::kernels
