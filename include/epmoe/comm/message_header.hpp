#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "epmoe/core/error.hpp"

namespace epmoe::comm {

/// The first block of every message; errors travel in it, never apart from the data they concern.
struct MessageHeader {
  static constexpr std::uint32_t kMagic = 0x45504d6f;  // "EPMo"
  static constexpr std::uint16_t kVersion = 1;
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint8_t phase = 0;  ///< comm::TagPhase
  std::uint8_t flags = 0;
  std::uint32_t epoch = 0;  ///< of the placement
  std::int32_t layer = 0;
  std::uint64_t step = 0;
  std::int32_t source = 0;
  std::int32_t status = 0;     ///< ErrorCode; not none: `rows` is 0 and error_* say what is wrong
  std::int64_t rows = 0;       ///< rows in this message
  std::int64_t more_rows = 0;  ///< rows of this call that follow in later messages
  std::int32_t row_blocks = 0;
  std::int32_t error_detail = 0;  ///< a MessageError
  std::int32_t error_row = 0;     ///< low 32 bits of the row at fault
  std::int32_t error_value = 0;
};
static_assert(sizeof(MessageHeader) == 64);

/// Why a rank could not take part with data, in a form that fits a header.
/// `row` and `value` of the header are in brackets.
enum class MessageError : std::int32_t {
  none = 0,
  id_out_of_range = 1,  ///< [row of the input, the id]
  bad_input = 2,        ///< [row of the input or 0, what was found]
  stage_failed = 3,
  abandoned = 4,
  header_mismatch = 5,  ///< [rank whose message belongs to another call, unused]
};

/// A failure as one rank knows it and as its peers read it from the header.
struct Failure {
  ErrorCode code = ErrorCode::none;
  MessageError detail = MessageError::none;
  int rank = -1;
  std::int64_t row = 0;
  std::int32_t value = 0;
  [[nodiscard]] bool any() const { return code != ErrorCode::none; }
  /// One line, the same on every rank: "rank 2: expert id 77 in row 5 is outside [0, 64) and not -1 (dispatch, …)".
  [[nodiscard]] std::string message(const std::string& phase, std::int64_t experts) const;
};

/// Empty if the header is what this call expects, else what differs, found and wanted. Rows, and the row size of a
/// rank that failed, may be anything sensible.
std::optional<std::string> mismatch(const MessageHeader& header, const MessageHeader& expected);

}  // namespace epmoe::comm
