#pragma once
#include <vector>

#include "epmoe/core/stage_data.hpp"

namespace epmoe {

/// Where the rows of one chunk lie. Costs what the chunk costs, not what the batch costs.
class BatchRows {
 public:
  BatchRows(const ExpertBatch& batch, const ExpertIndex& index);
  /// `row` is a row of the batch inside the chunk.
  [[nodiscard]] const std::byte* row(std::int64_t row) const {
    return rows_[static_cast<std::size_t>(row - first_)].data;
  }
  /// The f32 scale of an int8 row.
  [[nodiscard]] float scale(std::int64_t row) const;

 private:
  struct Place {
    const std::byte* data;
    std::int64_t scale_offset;
  };
  std::int64_t first_;
  std::vector<Place> rows_;
};

}  // namespace epmoe
