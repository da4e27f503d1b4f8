#include "prepare_finalize/dispatch_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace epmoe {

std::int64_t message_bytes(std::int64_t rows, std::int64_t capacity, std::int64_t row_bytes) {
  return std::max<std::int64_t>(1, ceil_div(rows, capacity)) * comm::kBlockBytes + rows * row_bytes;
}

std::vector<Piece> cut_messages(std::byte* at, std::int64_t rows, std::int64_t capacity, std::int64_t row_bytes) {
  std::vector<Piece> pieces;
  do {
    pieces.push_back({at, std::min(rows, capacity)});
    rows -= pieces.back().rows;
    at += comm::kBlockBytes + pieces.back().rows * row_bytes;
  } while (rows > 0);
  return pieces;
}

void write_dispatch_row(const DispatchRowFormat& format, ConstMatrixView x, std::int64_t token,
                        std::span<const WireEntry> entries, bool weight_on_input, std::byte* out) {
  const bool weigh = weight_on_input && !entries.empty();
  format.encode(x, token, weigh ? entries.front().weight : 1.0F, out);
  auto* at = out + format.entries_offset_bytes();
  for (std::int64_t k = 0; k < format.top_k(); ++k, at += sizeof(WireEntry)) {
    WireEntry entry{kNoExpert, 0, 0, 0.0F};
    if (k < static_cast<std::int64_t>(entries.size())) entry = entries[static_cast<std::size_t>(k)];
    if (weigh) entry.weight = 1.0F;
    std::memcpy(at, &entry, sizeof entry);
  }
}

void append_rows(ExpertBatch& batch, const DispatchRowFormat& format, const Placement& placement, int me, int source,
                 const std::byte* rows, std::int64_t count, bool rows_for_all) {
  auto& routing = batch.routing;
  for (std::int64_t r = 0; r < count; ++r) {
    const auto* row = rows + r * format.row_bytes();
    const auto* at = row + format.entries_offset_bytes();
    const auto entries_before = routing.physical_expert.size();
    int last_k = -1;
    for (std::int64_t i = 0; i < format.top_k(); ++i, at += sizeof(WireEntry)) {
      WireEntry entry{};
      std::memcpy(&entry, at, sizeof entry);
      if (entry.physical_expert == kNoExpert) break;
      const auto refuse = [&](const char* wanted) {
        throw CommError(fmt::format("rank {}: row {} from rank {} names physical expert {} at k {}, wanted {}", me, r,
                                    source, entry.physical_expert, entry.k, wanted),
                        me, "dispatch");
      };
      if (entry.physical_expert < 0 || entry.physical_expert >= placement.physical_slots())
        refuse("one of the placement");
      if (entry.k <= last_k || entry.k >= format.top_k()) refuse("ascending k below top_k");
      last_k = entry.k;
      const auto& slot = placement.slot(entry.physical_expert);
      if (slot.rank != me) {
        if (!rows_for_all) refuse("one of this rank");
        continue;
      }
      if (slot.shard != entry.shard) refuse("the placement's shard");
      routing.local_slot.push_back(slot.local_slot);
      routing.physical_expert.push_back(entry.physical_expert);
      routing.logical_expert.push_back(slot.logical_expert);
      routing.k.push_back(entry.k);
      routing.shard.push_back(slot.shard);
      routing.weight.push_back(entry.weight);
    }
    if (routing.physical_expert.size() == entries_before) continue;
    routing.row_begin.push_back(static_cast<std::int64_t>(routing.physical_expert.size()));
    // A row that follows its predecessor in memory makes the segment longer.
    auto* last = batch.segments.empty() ? nullptr : &batch.segments.back();
    if (last != nullptr && last->source == source && last->rows + last->count * last->stride_bytes == row) {
      ++last->count;
    } else {
      batch.segments.push_back({row, format.row_bytes(), 1, format.scale_offset_bytes(), source});
    }
  }
}

}  // namespace epmoe
