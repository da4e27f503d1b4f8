#include "epmoe/core/stage_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace epmoe {

std::int64_t StepPlan::max_tokens() const {
  return tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
}

std::int64_t StepPlan::total_tokens() const {
  return std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
}

std::int64_t StepPlan::first_token(int rank) const {
  return std::accumulate(tokens.begin(), tokens.begin() + rank, std::int64_t{0});
}

RowLocator::RowLocator(const ExpertBatch& batch) {
  rows_.reserve(static_cast<std::size_t>(batch.rows()));
  bool first = true;
  for (const Segment& segment : batch.segments) {
    if (segment.count == 0) continue;
    if (!first && segment.scale_offset_bytes != scale_offset_bytes_)
      throw InternalError(fmt::format("the segment of rank {} has its scales at byte {}, others at {}", segment.source,
                                      segment.scale_offset_bytes, scale_offset_bytes_));
    first = false;
    scale_offset_bytes_ = segment.scale_offset_bytes;
    for (std::int64_t r = 0; r < segment.count; ++r) rows_.push_back(segment.rows + r * segment.stride_bytes);
  }
  if (static_cast<std::int64_t>(rows_.size()) != batch.rows())
    throw InternalError(
        fmt::format("a batch has {} rows in its segments and routing for {}", rows_.size(), batch.rows()));
}

float RowLocator::scale(std::int64_t r) const {
  float value;
  std::memcpy(&value, row(r) + scale_offset_bytes_, sizeof(value));
  return value;
}

}  // namespace epmoe
