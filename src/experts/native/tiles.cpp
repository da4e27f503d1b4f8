#include "experts/native/tiles.hpp"

#include <algorithm>

#include "epmoe/core/aligned_memory.hpp"

namespace epmoe::native {
namespace {

constexpr std::int64_t kTileWeightBytes = 512 * 1024;  // half of a usual second-level cache
constexpr std::int64_t kTileMacs = 1 << 20;            // some tens of microseconds: between two looks at the network
constexpr std::int64_t kTileRows = 384;  // more rows are cut, so that one hot expert keeps all workers busy
constexpr std::int64_t kTilesPerWorker = 4;

}  // namespace

std::vector<Tile> cut_tiles(const ExpertIndex& index, std::int64_t panels, std::int64_t panel_bytes,
                            std::int64_t macs_per_row, int workers) {
  const auto experts = static_cast<std::int64_t>(index.expert_begin.size()) - 1;
  std::int64_t active = 0;
  for (std::int64_t e = 0; e < experts; ++e)
    active +=
        index.expert_begin[static_cast<std::size_t>(e) + 1] > index.expert_begin[static_cast<std::size_t>(e)] ? 1 : 0;
  std::vector<Tile> tiles;
  if (active == 0) return tiles;

  const std::int64_t by_cache = kTileWeightBytes / panel_bytes;
  const std::int64_t by_balance = active * panels / (kTilesPerWorker * workers);
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t begin = index.expert_begin[static_cast<std::size_t>(e)];
    const std::int64_t end = index.expert_begin[static_cast<std::size_t>(e) + 1];
    if (begin == end) continue;
    const std::int64_t parts = ceil_div(end - begin, kTileRows);
    const std::int64_t rows = ceil_div(end - begin, parts);
    const std::int64_t by_work = kTileMacs / (macs_per_row * rows);
    const std::int64_t step = std::clamp<std::int64_t>(std::min({by_cache, by_balance, by_work}), 1, panels);
    for (std::int64_t p = 0; p < panels; p += step)
      for (std::int64_t r = begin; r < end; r += rows)
        tiles.push_back({e, r, std::min(r + rows, end), p, std::min(p + step, panels)});
  }
  return tiles;
}

}  // namespace epmoe::native
