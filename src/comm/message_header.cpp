#include "epmoe/comm/message_header.hpp"

#include <fmt/format.h>

namespace epmoe::comm {

std::string Failure::message(const std::string& phase, std::int64_t experts) const {
  switch (detail) {
    case MessageError::id_out_of_range:
      return fmt::format("rank {}: expert id {} in row {} is outside [0, {}) and not -1 ({})", rank, value, row,
                         experts, phase);
    case MessageError::bad_input:
      return fmt::format("rank {}: the input of its call is not valid: found {} in row {} ({})", rank, value, row,
                         phase);
    case MessageError::stage_failed:
      return fmt::format("rank {}: a stage failed there ({} error), wanted its rows ({})", rank, name(code), phase);
    case MessageError::abandoned:
      return fmt::format("rank {}: dropped its pending call, wanted it received ({})", rank, phase);
    case MessageError::header_mismatch:
      return fmt::format(
          "rank {}: found a message from rank {} that belongs to another call, wanted one of this call ({})", rank, row,
          phase);
    case MessageError::none: break;
  }
  return fmt::format("rank {}: {} error ({})", rank, name(code), phase);
}

std::optional<std::string> mismatch(const MessageHeader& header, const MessageHeader& expected) {
  const auto differ = [](const char* field, auto found, auto wanted) {
    return fmt::format("{}: found {}, wanted {}", field, found, wanted);
  };
  if (header.magic != expected.magic) return differ("magic", header.magic, expected.magic);
  if (header.version != expected.version) return differ("version", header.version, expected.version);
  if (header.source != expected.source) return differ("source rank", header.source, expected.source);
  if (header.phase != expected.phase) return differ("phase", int{header.phase}, int{expected.phase});
  if (header.step != expected.step) return differ("step", header.step, expected.step);
  if (header.layer != expected.layer) return differ("layer", header.layer, expected.layer);
  if (header.epoch != expected.epoch) return differ("placement epoch", header.epoch, expected.epoch);
  if (header.rows < 0) return differ("rows", header.rows, "at least 0");
  if (header.more_rows < 0) return differ("rows to follow", header.more_rows, "at least 0");
  if (header.status != 0) {
    if (header.rows != 0) return differ("rows of a failed rank", header.rows, 0);
    return std::nullopt;
  }
  if (header.row_blocks != expected.row_blocks) return differ("blocks per row", header.row_blocks, expected.row_blocks);
  return std::nullopt;
}

}  // namespace epmoe::comm
