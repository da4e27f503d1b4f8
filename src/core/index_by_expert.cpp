#include <fmt/format.h>

#include "epmoe/core/stage_data.hpp"

namespace epmoe {

ExpertIndex index_by_expert(const ExpertBatch& batch, std::int64_t first_row, std::int64_t rows) {
  const DispatchedRouting& routing = batch.routing;
  if (first_row < 0 || rows < 0 || first_row + rows > batch.rows())
    throw InternalError(fmt::format("rows [{}, {}) of a batch of {}", first_row, first_row + rows, batch.rows()));
  ExpertIndex index;
  index.first_row = first_row;
  index.rows = rows;
  index.first_entry = routing.row_begin[static_cast<std::size_t>(first_row)];
  const std::int64_t past_entry = routing.row_begin[static_cast<std::size_t>(first_row + rows)];
  index.entries = past_entry - index.first_entry;
  index.expert_begin.assign(static_cast<std::size_t>(batch.local_experts) + 1, 0);
  index.row.resize(static_cast<std::size_t>(index.entries));
  index.entry.resize(static_cast<std::size_t>(index.entries));

  for (std::int64_t i = index.first_entry; i < past_entry; ++i) {
    const std::int32_t slot = routing.local_slot[static_cast<std::size_t>(i)];
    if (slot < 0 || slot >= batch.local_experts)
      throw InternalError(
          fmt::format("entry {} names local slot {}, wanted one in [0, {})", i, slot, batch.local_experts));
    ++index.expert_begin[static_cast<std::size_t>(slot) + 1];
  }
  for (std::size_t e = 1; e < index.expert_begin.size(); ++e) index.expert_begin[e] += index.expert_begin[e - 1];
  std::vector<std::int64_t> next(index.expert_begin.begin(), index.expert_begin.end() - 1);
  for (std::int64_t r = first_row; r < first_row + rows; ++r)
    for (std::int64_t i = routing.row_begin[static_cast<std::size_t>(r)];
         i < routing.row_begin[static_cast<std::size_t>(r) + 1]; ++i) {
      const auto slot = static_cast<std::size_t>(routing.local_slot[static_cast<std::size_t>(i)]);
      const auto at = static_cast<std::size_t>(next[slot]++);
      index.row[at] = r;
      index.entry[at] = i - index.first_entry;
    }
  return index;
}

}  // namespace epmoe
