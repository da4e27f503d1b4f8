#pragma once
// How rows and columns of a panel are cut into register tiles.
#include "experts/kernels/vectors.hpp"

namespace epmoe::kernels {
namespace {

constexpr int kMaxTileRows = 6;
constexpr int kAccumulators = EPMOE_VECTOR_REGISTERS >= 32 ? 24 : 12;

/// Column vectors a tile of `rows` rows holds at once.
constexpr int tile_vectors(int rows) {
  int vectors = 1;
  while (vectors * 2 * rows <= kAccumulators && vectors * 2 * kLanes <= kPanelColumns) vectors *= 2;
  return vectors;
}

/// Tiles of two neighbouring sizes, so that none is left nearly empty: first `larger` ones of small + 1 rows.
struct RowTiles {
  int64_t count, larger;
  int small;
};
inline RowTiles cut_rows(int64_t rows) {
  const int64_t tiles = (rows + kMaxTileRows - 1) / kMaxTileRows;
  return {tiles, rows % tiles, static_cast<int>(rows / tiles)};
}

template <int Value>
struct Int {
  static constexpr int value = Value;
};

/// Calls tile(Int<rows>, row) for all tiles.
template <class Tile>
inline void for_row_tiles(int64_t rows, const Tile& tile) {
  const RowTiles cut = cut_rows(rows);
  int64_t row = 0;
  for (int64_t t = 0; t < cut.count; ++t) {
    const int size = cut.small + (t < cut.larger ? 1 : 0);
    switch (size) {
      case 1: tile(Int<1>{}, row); break;
      case 2: tile(Int<2>{}, row); break;
      case 3: tile(Int<3>{}, row); break;
      case 4: tile(Int<4>{}, row); break;
      case 5: tile(Int<5>{}, row); break;
      default: tile(Int<kMaxTileRows>{}, row); break;
    }
    row += size;
  }
}

}  // namespace
}  // namespace epmoe::kernels
