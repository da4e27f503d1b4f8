#include "experts/native/gather.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "experts/backends.hpp"
#include "experts/batch_rows.hpp"

namespace epmoe::native {
namespace {

constexpr std::int64_t kPaddingBytes = 64;  // K is padded to this, whatever the type

bool has_part_sums(const PackedLayout& packed) {
  return packed.compute == ComputeType::int8 && packed.weights.narrow();
}

std::int64_t part_values(const PackedLayout& packed) {
  const std::int64_t group = packed.weights.block_cols;
  return group == 0 ? kernels::kPartValues : std::min(group, kernels::kPartValues);
}

/// What follows the n values of a row.
void finish_row(const RowConversion& conversion, const RowStore& store, std::byte* row, std::int64_t n) {
  const std::int64_t used = conversion.bytes(n);
  std::memset(row + used, conversion.flip, static_cast<std::size_t>(store.stride_bytes - used));
  const PackedLayout packed = experts::packed_layout_of(conversion.config);
  if (!has_part_sums(packed)) return;
  const std::int64_t padded = packed.padded_k(n);
  conversion.kernels.part_sums(reinterpret_cast<const std::int8_t*>(row), padded, part_values(packed),
                               reinterpret_cast<std::int32_t*>(row + padded));
}

}  // namespace

std::int64_t row_bytes(const PackedLayout& packed, std::int64_t n) {
  const std::int64_t padded = packed.padded_k(n);
  const std::int64_t sums = has_part_sums(packed) ? ceil_div(padded, part_values(packed)) : 0;
  return round_up(padded * packed.element_bytes() + 4 * sums, kPaddingBytes);
}

void gather(const RowConversion& conversion, const ExpertBatch& batch, const ExpertIndex& index, const RowStore& store,
            const GatherScratch& scratch, const GemmRows& to, const ExecutionContext& context) {
  const PhaseTimer timer(context, Phase::permute);
  const BatchRows from(batch, index);
  const std::int64_t used_bytes = conversion.bytes(batch.hidden);
  // Behind a row that needs padding lies something else, which times a padding weight of 0 may be NaN.
  const bool in_place = conversion.unchanged(batch.type) && used_bytes == store.read_bytes;
  std::vector<float> scales(static_cast<std::size_t>(to.scales != nullptr ? index.rows : 0));
  const auto body = [&](std::int64_t task, int) {
    const std::int64_t end = std::min((task + 1) * kRowsPerTask, index.rows);
    for (std::int64_t i = task * kRowsPerTask; i < end; ++i) {
      const std::int64_t row = index.first_row + i;
      const auto begin = batch.routing.row_begin.begin() + row;
      if (begin[0] == begin[1]) continue;  // a row that no expert wants may hold anything
      const RowSource source{batch.type, from.row(row), batch.type == DispatchType::int8 ? from.scale(row) : 1.0F};
      std::byte* out = store.data + i * store.stride_bytes;
      const float scale = conversion.convert(source, out, scratch.rows + task * scratch.stride);
      finish_row(conversion, store, out, batch.hidden);
      if (to.scales != nullptr) scales[static_cast<std::size_t>(i)] = scale;
    }
  };
  if (!in_place) context.executor->run(ceil_div(index.rows, kRowsPerTask), body, context.progress);
  for (std::int64_t i = 0; i < index.entries; ++i) {
    const std::int64_t row = index.row[static_cast<std::size_t>(i)];
    to.rows[i] = in_place ? from.row(row) : store.data + (row - index.first_row) * store.stride_bytes;
    if (to.scales != nullptr)
      to.scales[i] = in_place ? from.scale(row) : scales[static_cast<std::size_t>(row - index.first_row)];
  }
}

void quantize_rows(const RowConversion& conversion, const float* activation, std::int64_t stride, std::int64_t n,
                   std::int64_t count, const RowStore& store, const GemmRows& to, const ExecutionContext& context) {
  const PhaseTimer timer(context, Phase::act);
  const auto body = [&](std::int64_t task, int) {
    const std::int64_t end = std::min((task + 1) * kRowsPerTask, count);
    for (std::int64_t i = task * kRowsPerTask; i < end; ++i) {
      std::byte* out = store.data + i * store.stride_bytes;
      to.scales[i] = conversion.quantize(conversion.config.quant.a2, activation + i * stride, n, out);
      finish_row(conversion, store, out, n);
    }
  };
  context.executor->run(ceil_div(count, kRowsPerTask), body, context.progress);
  point_at_rows(store.data, store.stride_bytes, count, to);
}

void point_at_rows(const std::byte* data, std::int64_t stride_bytes, std::int64_t count, const GemmRows& to) {
  for (std::int64_t i = 0; i < count; ++i) to.rows[i] = data + i * stride_bytes;
}

}  // namespace epmoe::native
