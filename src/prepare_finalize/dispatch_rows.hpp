#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "epmoe/comm/slot_pool.hpp"
#include "epmoe/core/stage_data.hpp"
#include "epmoe/quantize/row_format.hpp"
#include "prepare_finalize/exchange.hpp"

namespace epmoe {

/// Cuts `rows` rows into messages of at most `capacity` rows, one after the other from `at` on; at least one message.
std::vector<Piece> cut_messages(std::byte* at, std::int64_t rows, std::int64_t capacity, std::int64_t row_bytes);
/// Bytes that takes.
std::int64_t message_bytes(std::int64_t rows, std::int64_t capacity, std::int64_t row_bytes);
/// Where row `row` of messages cut that way lies.
inline std::byte* message_row(std::byte* at, std::int64_t row, std::int64_t capacity, std::int64_t row_bytes) {
  return at + (row / capacity + 1) * comm::kBlockBytes + row * row_bytes;
}

/// Writes one row: values, scale and routing entries. With `weight_on_input` the first entry's weight multiplies the
/// values before they are rounded, and 1 travels in its place.
void write_dispatch_row(const DispatchRowFormat& format, ConstMatrixView x, std::int64_t token,
                        std::span<const WireEntry> entries, bool weight_on_input, std::byte* out);

/// Appends the rows of one message to a batch, as far as their entries name experts of rank `me`. Entries of other
/// ranks' experts are passed over if `rows_for_all`; otherwise they violate the protocol, as does any entry that this
/// placement does not know (CommError).
void append_rows(ExpertBatch& batch, const DispatchRowFormat& format, const Placement& placement, int me, int source,
                 const std::byte* rows, std::int64_t count, bool rows_for_all);

}  // namespace epmoe
