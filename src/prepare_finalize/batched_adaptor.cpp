#include "epmoe/prepare_finalize/batched_adaptor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "epmoe/quantize/row_format.hpp"

namespace epmoe {
BatchedRows to_batched(const ExpertBatch& batch, const ExpertIndex& index, std::int64_t max_rows) {
  const auto experts = static_cast<std::int64_t>(index.expert_begin.size()) - 1;
  BatchedRows out;
  out.max_rows = max_rows;
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto n = static_cast<std::size_t>(e);
    out.count.push_back(index.expert_begin[n + 1] - index.expert_begin[n]);
    if (out.count.back() > max_rows)
      throw InternalError(fmt::format("batched form: local expert {} has {} rows, the padded form has room for {}", e,
                                      out.count.back(), max_rows));
  }
  const auto values = value_bytes(batch.type) * batch.hidden;
  const auto scale_bytes = batch.type == DispatchType::int8 ? static_cast<std::int64_t>(sizeof(float)) : 0;
  out.scale_offset_bytes = round_up(values, 4);
  out.row_stride_bytes = round_up(out.scale_offset_bytes + scale_bytes, kCacheLineBytes);
  out.rows = AlignedBuffer(experts * max_rows * out.row_stride_bytes);
  const RowLocator locator(batch);
  for (std::int64_t e = 0; e < experts; ++e) {
    auto* to = out.rows.data() + e * max_rows * out.row_stride_bytes;
    const auto begin = index.expert_begin[static_cast<std::size_t>(e)];
    for (std::int64_t i = 0; i < out.count[static_cast<std::size_t>(e)]; ++i, to += out.row_stride_bytes) {
      const auto row = index.row[static_cast<std::size_t>(begin + i)];
      std::memcpy(to, locator.row(row), static_cast<std::size_t>(values));
      if (scale_bytes != 0) {
        const float scale = locator.scale(row);
        std::memcpy(to + out.scale_offset_bytes, &scale, sizeof scale);
      }
    }
  }
  return out;
}

}  // namespace epmoe
