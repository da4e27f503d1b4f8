#include "experts/batch_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "epmoe/core/error.hpp"

namespace epmoe {

BatchRows::BatchRows(const ExpertBatch& batch, const ExpertIndex& index) : first_(index.first_row) {
  rows_.reserve(static_cast<std::size_t>(index.rows));
  std::int64_t begin = 0;  // row of the batch that the segment starts with
  for (const Segment& segment : batch.segments) {
    const std::int64_t from = std::max(begin, index.first_row);
    const std::int64_t to = std::min(begin + segment.count, index.first_row + index.rows);
    for (std::int64_t r = from; r < to; ++r)
      rows_.push_back({segment.rows + (r - begin) * segment.stride_bytes, segment.scale_offset_bytes});
    begin += segment.count;
  }
  if (static_cast<std::int64_t>(rows_.size()) != index.rows)
    throw InputError(fmt::format("experts: rows [{}, {}) of a batch whose segments hold {}", index.first_row,
                                 index.first_row + index.rows, begin));
}

float BatchRows::scale(std::int64_t row) const {
  const Place& place = rows_[static_cast<std::size_t>(row - first_)];
  float scale;
  std::memcpy(&scale, place.data + place.scale_offset, sizeof scale);
  return scale;
}

}  // namespace epmoe
