#pragma once
#include <cstdint>
#include <vector>

#include "epmoe/core/stage_data.hpp"

namespace epmoe::native {

/// A task of the grouped GEMM: some rows of one expert against some neighbouring 64-column panels.
struct Tile {
  std::int64_t expert;
  std::int64_t row_begin, row_end;  ///< entries in expert order
  std::int64_t panel_begin, panel_end;
};

/// Cuts all experts that have rows into tiles. `panel_bytes`: weights read per panel; `macs_per_row`: multiplications
/// per row and panel. The cut affects speed only, never a sum.
std::vector<Tile> cut_tiles(const ExpertIndex& index, std::int64_t panels, std::int64_t panel_bytes,
                            std::int64_t macs_per_row, int workers);

}  // namespace epmoe::native
