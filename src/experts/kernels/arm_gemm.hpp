#pragma once
// The GEMM of some rows and one 64-column panel on AArch64, for the words of arm_words.hpp: blocks of K, groups of rows
// whose packed form stays in the first cache, strips of columns, register tiles. Sums are parked in C between blocks of
// K, so their order does not change.
#include "experts/kernels/arm_words.hpp"
#include "experts/kernels/panel_gemm.hpp"

namespace epmoe::kernels {
namespace {

constexpr int64_t kArmBlockBytes = 64 * 1024;  ///< of a panel: a strip of it and a group of rows fit a first cache
constexpr int64_t kGroupRows = 24;
constexpr int64_t kArmAheadBytes = 8192;

template <class Words>
constexpr int64_t kArmPanelWordBytes = kPanelColumns * Words::kWordBytes;
template <class Words>
constexpr int64_t kArmBlockWords = kArmBlockBytes / kArmPanelWordBytes<Words>;

/// Column vectors that a tile of `units` units holds at once.
template <class Words>
constexpr int strip_vectors(int units) {
  int vectors = 1;
  while (vectors * 2 * units <= Words::kAccumulators && vectors * 2 * EPMOE_VECTOR_BYTES <= kArmPanelWordBytes<Words>)
    vectors *= 2;
  return vectors;
}

/// Row data of a block: the rows themselves from a byte on, or units packed one after the other.
template <class Words>
struct ArmRows {
  const void* const* rows;
  int64_t begin_bytes;
  const char* packed;
  int64_t unit_bytes;
  [[nodiscard]] const char* unit(int64_t u) const {
    if constexpr (Words::kPacked)
      return packed + u * unit_bytes;
    else
      return static_cast<const char*>(rows[u]) + begin_bytes;
  }
  [[nodiscard]] ArmRows from(int64_t u) const {
    ArmRows rest = *this;
    if constexpr (Words::kPacked)
      rest.packed += u * unit_bytes;
    else
      rest.rows += u;
    return rest;
  }
};

/// One block of K: its first word, and memory that is wanted soon.
struct ArmBlock {
  const char* w;
  int64_t begin, words;
  const char* next;  ///< what follows this block, or null
};

template <class Words, int Step, int Units, int Vectors>
inline void add_words(typename Words::Accumulator (&acc)[Units][Vectors], const U32 (&a)[Units], const char* w) {
  EPMOE_UNROLL
  for (int v = 0; v < Vectors; ++v) {
    EPMOE_UNROLL
    for (int u = 0; u < Units; ++u) Words::template add<Step>(acc[u][v], a[u], w + v * EPMOE_VECTOR_BYTES);
  }
  if constexpr (Step + 1 < Words::kStepWords) add_words<Words, Step + 1>(acc, a, w + kArmPanelWordBytes<Words>);
}

/// `rows`: rows of C from c on that exist, one less than the tile has where the last unit is half empty. A function of
/// its own, so that the registers are its own and scripts/arm_mca.sh finds its loop.
template <class Words, int Units, int Fetch>
[[gnu::noinline]] void arm_tile(const ArmRows<Words>& rows, const char* w, int64_t words, float* c, int64_t c_stride,
                                int64_t rows_of_c, bool first_block, const char* fetch) {
  constexpr int kVectors = strip_vectors<Words>(Units);
  using Accumulator = typename Words::Accumulator;
  Accumulator acc[Units][kVectors];
  alignas(64) float nowhere[kPanelColumns];
  float* c_of[Units][2];
  EPMOE_UNROLL
  for (int u = 0; u < Units; ++u) {
    c_of[u][0] = c + u * Words::kRowsPerUnit * c_stride;
    c_of[u][1] = u * Words::kRowsPerUnit + 1 < rows_of_c ? c_of[u][0] + c_stride : nowhere;
  }
  if (first_block) {
    EPMOE_UNROLL
    for (int u = 0; u < Units; ++u) {
      EPMOE_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[u][v] = Accumulator{};
    }
  } else {
    if (Words::kRowsPerUnit == 2 && rows_of_c % 2 != 0) __builtin_memset(nowhere, 0, sizeof nowhere);
    EPMOE_UNROLL
    for (int u = 0; u < Units; ++u) Words::load_sums(acc[u], c_of[u][0], c_of[u][1]);
  }
  const char* a[Units];
  EPMOE_UNROLL
  for (int u = 0; u < Units; ++u) a[u] = rows.unit(u);
  int64_t at = 0;
  for (int64_t word = 0; word < words; word += Words::kStepWords) {
    EPMOE_UNROLL
    for (int line = 0; line < Fetch * Words::kStepWords; ++line) __builtin_prefetch(fetch + line * 64, 0, 2);
    fetch += Fetch * Words::kStepWords * 64;
    U32 row[Units];
    EPMOE_UNROLL
    for (int u = 0; u < Units; ++u) row[u] = load_segment(a[u] + at);
    add_words<Words, 0>(acc, row, w);
    at += Words::kStepBytes;
    w += Words::kStepWords * kArmPanelWordBytes<Words>;
  }
  EPMOE_UNROLL
  for (int u = 0; u < Units; ++u) Words::store_sums(acc[u], c_of[u][0], c_of[u][1]);
}

/// `tiles` tiles of `Units` units against all columns. With one tile in all, memory is what counts: the first strip
/// fetches whole words ahead for the other strips. With more, the first tile fetches what follows the block.
template <class Words, int Units>
inline void arm_tiles(const PanelGemm& g, const ArmRows<Words>& rows, int64_t row, int64_t row_end, int64_t tiles,
                      bool first_tile, bool only_tile, const ArmBlock& block) {
  constexpr int kVectors = strip_vectors<Words>(Units);
  constexpr int kColumns = kVectors * EPMOE_VECTOR_BYTES / Words::kWordBytes;
  constexpr int kStrips = kPanelColumns / kColumns;
  constexpr int kLines = kArmPanelWordBytes<Words> / 64;
  constexpr int kShare = (kLines + kStrips - 1) / kStrips;
  const bool first_block = block.begin == 0;
  for (int64_t strip = 0; strip < kStrips; ++strip) {
    const char* w = block.w + strip * kVectors * EPMOE_VECTOR_BYTES;
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t at = row + t * Units * Words::kRowsPerUnit;
      const ArmRows<Words> own = rows.from(t * Units);
      float* c = g.c + at * g.c_stride + strip * kColumns;
      const int64_t rows_of_c = row_end - at;
      const bool leads = first_tile && t == 0;
      if constexpr (kStrips > 1) {
        if (leads && only_tile && strip == 0) {
          arm_tile<Words, Units, kLines>(own, w, block.words, c, g.c_stride, rows_of_c, first_block,
                                         block.w + kArmAheadBytes);
          continue;
        }
      }
      if constexpr (2 * Units > Words::kMaxUnits) {  // smaller tiles are alone
        if (leads && !only_tile && block.next != nullptr) {
          arm_tile<Words, Units, kShare>(own, w, block.words, c, g.c_stride, rows_of_c, first_block,
                                         block.next + strip * block.words * kShare * 64);
          continue;
        }
      }
      arm_tile<Words, Units, 0>(own, w, block.words, c, g.c_stride, rows_of_c, first_block, nullptr);
    }
  }
}

template <class Words, int Units = Words::kMaxUnits>
inline void arm_units(int units, const PanelGemm& g, const ArmRows<Words>& rows, int64_t row, int64_t row_end,
                      int64_t tiles, bool first_tile, bool only_tile, const ArmBlock& block) {
  if (units == Units) {
    arm_tiles<Words, Units>(g, rows, row, row_end, tiles, first_tile, only_tile, block);
  } else if constexpr (Units > 1) {
    arm_units<Words, Units - 1>(units, g, rows, row, row_end, tiles, first_tile, only_tile, block);
  }
}

/// Rows of one group in a block. Units are cut into tiles of two neighbouring sizes, so that none is nearly empty.
template <class Words>
inline void arm_group(const PanelGemm& g, int64_t row, int64_t row_end, const ArmBlock& block, bool first_group,
                      char* packed) {
  constexpr int64_t kRows = Words::kRowsPerUnit;
  const int64_t units = (row_end - row + kRows - 1) / kRows;
  const int64_t tiles = (units + Words::kMaxUnits - 1) / Words::kMaxUnits;
  const auto small = static_cast<int>(units / tiles);
  const int64_t larger = units - tiles * small;  // tiles with one unit more
  ArmRows<Words> rows{g.a + row, block.begin * Words::kWordBytes, packed,
                      block.words / Words::kStepWords * Words::kStepBytes};
  if constexpr (Words::kPacked) {
    for (int64_t u = 0; u < units; ++u) {
      const int64_t first = row + u * kRows;
      // The last row alone is its own partner, whose sums nobody stores.
      const int64_t second = first + 1 < row_end ? first + 1 : first;
      Words::pack(static_cast<const char*>(g.a[first]) + rows.begin_bytes,
                  static_cast<const char*>(g.a[second]) + rows.begin_bytes, block.words, packed + u * rows.unit_bytes);
    }
  }
  const bool only = tiles == 1 && first_group && row_end == g.rows;
  const int64_t large_units = larger * (small + 1);
  if (larger > 0) arm_units<Words>(small + 1, g, rows, row, row_end, larger, first_group, only, block);
  rows = rows.from(large_units);
  arm_units<Words>(small, g, rows, row + large_units * kRows, row_end, tiles - larger, first_group && larger == 0, only,
                   block);
}

/// C = sums only.
template <class Words>
inline void arm_sums(const PanelGemm& g) {
  constexpr int64_t kWords = kArmBlockWords<Words>;
  constexpr int64_t kPackedBytes =
      Words::kPacked ? kGroupRows / Words::kRowsPerUnit * (kWords / Words::kStepWords) * Words::kStepBytes : 16;
  alignas(64) char packed[kPackedBytes];
  const int64_t groups = (g.rows + kGroupRows - 1) / kGroupRows;
  const int64_t group_rows = ((g.rows + groups - 1) / groups + 1) / 2 * 2;
  for (int64_t begin = 0; begin < g.words; begin += kWords) {
    const bool last = begin + kWords >= g.words;
    const char* w = static_cast<const char*>(g.w) + begin * kArmPanelWordBytes<Words>;
    const ArmBlock block{w, begin, last ? g.words - begin : kWords,
                         last ? static_cast<const char*>(g.next) : w + kArmBlockBytes};
    for (int64_t row = 0; row < g.rows; row += group_rows)
      arm_group<Words>(g, row, row + group_rows < g.rows ? row + group_rows : g.rows, block, row == 0, packed);
  }
}

template <class Words>
void arm_gemm_float(const PanelGemm& g) {
  arm_sums<Words>(g);
  add_bias(g);
}

template <class Words>
void arm_gemm_integer(const PanelGemm& g) {
  arm_sums<Words>(g);
  scale_sums<false>(g);
  add_bias(g);
}

}  // namespace
}  // namespace epmoe::kernels
