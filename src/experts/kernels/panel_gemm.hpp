#pragma once
// The GEMM of some rows and one 64-column panel, for words of one format: register tiles of up to six rows, blocks of
// K that stay in cache while the tiles pass over them, and prefetch of what comes next.
#include "experts/kernels/tile_shape.hpp"
#include "experts/kernels/words.hpp"

namespace epmoe::kernels {
namespace {

/// Words of K per block, which stays in a cache while the row tiles pass over it and fetch the next one: with two or
/// three tiles memory has to work all the time, and a block of 16 KiB keeps it close ahead of the sums; with more there
/// is time, and a block of 128 KiB parks the sums less often. They are parked in C, so their order does not change.
constexpr int64_t kSmallBlockWords = 64, kBlockWords = 512;
/// How far ahead one tile that streams through fresh weights asks for them.
constexpr int64_t kAheadBytes = 32 * kPanelWordBytes;

/// A span of a panel's words, and memory that is wanted soon.
struct Block {
  int64_t word_begin, word_end;
  const char* fetch;  ///< `Fetch` lines per word are fetched from here on
};

template <class Words, int Rows, int Fetch>
inline void gemm_tile(const PanelGemm& g, int64_t row, int64_t column, const Block& block) {
  constexpr int kVectors = tile_vectors(Rows);
  using Accumulator = typename Words::Accumulator;
  Accumulator acc[Rows][kVectors];
  float* c = g.c + row * g.c_stride + column;
  if (block.word_begin == 0) {
    EPMOE_UNROLL
    for (int r = 0; r < Rows; ++r) {
      EPMOE_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[r][v] = Accumulator{};
    }
  } else {
    EPMOE_UNROLL
    for (int r = 0; r < Rows; ++r) {
      EPMOE_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[r][v] = load<Accumulator>(c + r * g.c_stride + v * kLanes);
    }
  }
  const char* w = static_cast<const char*>(g.w) + block.word_begin * kPanelWordBytes + column * 4;
  const char* a[Rows];
  EPMOE_UNROLL
  for (int r = 0; r < Rows; ++r) a[r] = static_cast<const char*>(g.a[row + r]);
  const char* fetch = block.fetch;
  for (int64_t word = block.word_begin; word < block.word_end; ++word, w += kPanelWordBytes) {
    EPMOE_UNROLL
    for (int line = 0; line < Fetch; ++line) __builtin_prefetch(fetch + line * 64, 0, 2);
    fetch += Fetch * 64;
    typename Words::Weight weight[kVectors];
    EPMOE_UNROLL
    for (int v = 0; v < kVectors; ++v) weight[v] = Words::weight(w + v * EPMOE_VECTOR_BYTES);
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
    for (int v = 0; v < kVectors; ++v) store(c + r * g.c_stride + v * kLanes, acc[r][v]);
  }
}

/// Whole tiles of one block. The lines of the next block are shared out among the tiles, so that memory works while the
/// tiles compute; with one tile there is no time to hide anything in, and hardware follows a single stream best, but
/// from six rows on it needs a push.
template <class Words, int Rows>
inline void gemm_tiles(const PanelGemm& g, int64_t row_begin, int64_t tiles, int64_t first_tile, int64_t all_tiles,
                       const Block& block) {
  constexpr int kColumns = tile_vectors(Rows) * kLanes;
  constexpr int64_t kLines = kPanelWordBytes / 64;
  if constexpr (kColumns < kPanelColumns) {
    // A tile narrower than the panel reads memory in strides, which hardware does not foresee: the first tile's first
    // pass fetches whole words for all that follow. (A prefetch past the end is harmless.)
    for (int64_t column = 0; column < kPanelColumns; column += kColumns)
      for (int64_t t = 0; t < tiles; ++t) {
        if (column == 0 && first_tile + t == 0) {
          const char* own = static_cast<const char*>(g.w) + block.word_begin * kPanelWordBytes + kAheadBytes;
          gemm_tile<Words, Rows, kLines>(g, row_begin, 0, {block.word_begin, block.word_end, own});
        } else {
          gemm_tile<Words, Rows, 0>(g, row_begin + t * Rows, column, block);
        }
      }
  } else {
    const int64_t words = block.word_end - block.word_begin;
    const int64_t doubles = all_tiles < kLines ? kLines - all_tiles : 0;  // tiles that fetch two lines a word
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t row = row_begin + t * Rows, tile = first_tile + t;
      if (all_tiles == 1) {
        const char* own = static_cast<const char*>(g.w) + block.word_begin * kPanelWordBytes + kAheadBytes;
        if constexpr (Rows == kMaxTileRows)
          gemm_tile<Words, Rows, kLines>(g, row, 0, {block.word_begin, block.word_end, own});
        else
          gemm_tile<Words, Rows, 0>(g, row, 0, block);
      } else if (block.fetch != nullptr && tile < doubles) {
        gemm_tile<Words, Rows, 2>(g, row, 0, {block.word_begin, block.word_end, block.fetch + tile * words * 2 * 64});
      } else if (block.fetch != nullptr && tile < kLines - doubles) {
        gemm_tile<Words, Rows, 1>(g, row, 0,
                                  {block.word_begin, block.word_end, block.fetch + (doubles + tile) * words * 64});
      } else {
        gemm_tile<Words, Rows, 0>(g, row, 0, block);
      }
    }
  }
}

template <class Words>
inline void gemm_rows(const PanelGemm& g, int tile_rows, int64_t row, int64_t tiles, int64_t first_tile,
                      int64_t all_tiles, const Block& block) {
  switch (tile_rows) {
    case 1: gemm_tiles<Words, 1>(g, row, tiles, first_tile, all_tiles, block); break;
    case 2: gemm_tiles<Words, 2>(g, row, tiles, first_tile, all_tiles, block); break;
    case 3: gemm_tiles<Words, 3>(g, row, tiles, first_tile, all_tiles, block); break;
    case 4: gemm_tiles<Words, 4>(g, row, tiles, first_tile, all_tiles, block); break;
    case 5: gemm_tiles<Words, 5>(g, row, tiles, first_tile, all_tiles, block); break;
    default: gemm_tiles<Words, kMaxTileRows>(g, row, tiles, first_tile, all_tiles, block); break;
  }
}

/// C = sums only.
template <class Words>
inline void gemm_sums(const PanelGemm& g) {
  constexpr bool kWhole = tile_vectors(kMaxTileRows) * kLanes == kPanelColumns;
  const RowTiles cut = cut_rows(g.rows);
  const int64_t size = kWhole && (cut.count == 2 || cut.count == 3) ? kSmallBlockWords : kBlockWords;
  for (int64_t begin = 0; begin < g.words; begin += size) {
    Block block{begin, begin + size, static_cast<const char*>(g.w) + (begin + size) * kPanelWordBytes};
    if (block.word_end >= g.words) {
      block.word_end = g.words;
      block.fetch = static_cast<const char*>(g.next);
    }
    if (cut.larger > 0) gemm_rows<Words>(g, cut.small + 1, 0, cut.larger, 0, cut.count, block);
    gemm_rows<Words>(g, cut.small, cut.larger * (cut.small + 1), cut.count - cut.larger, cut.larger, cut.count, block);
  }
}

inline void add_bias(const PanelGemm& g) {
  if (g.bias == nullptr) return;
  for (int64_t r = 0; r < g.rows; ++r)
    for (int64_t n = 0; n < kPanelColumns; n += kLanes) {
      float* c = g.c + r * g.c_stride + n;
      store(c, load<F32>(c) + load<F32>(g.bias + n));
    }
}

/// Integer sums in C to scaled floats; rows stored as value + 128 first lose 128 times the column's sum.
template <bool UnsignedRows>
inline void scale_sums(const PanelGemm& g) {
  for (int64_t r = 0; r < g.rows; ++r) {
    const F32 row_scale = splat(g.row_scale[r]);
    for (int64_t n = 0; n < kPanelColumns; n += kLanes) {
      float* c = g.c + r * g.c_stride + n;
      I32 sum = load<I32>(c);
      if constexpr (UnsignedRows) sum = (I32)((U32)sum - (load<U32>(g.column_sum + n) << 7));
      store(c, __builtin_convertvector(sum, F32) * (row_scale * load<F32>(g.channel_scale + n)));
    }
  }
}

template <class Words>
void gemm_float(const PanelGemm& g) {
  gemm_sums<Words>(g);
  add_bias(g);
}

template <class Words>
void gemm_integer(const PanelGemm& g) {
  gemm_sums<Words>(g);
  scale_sums<Words::kUnsignedRows>(g);
  add_bias(g);
}

}  // namespace
}  // namespace epmoe::kernels
