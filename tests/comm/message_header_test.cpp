#include "epmoe/comm/message_header.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace epmoe::comm {
namespace {

TEST(MessageHeader, EqualHeadersMatchWhateverTheirRows) {
  MessageHeader expected;
  expected.step = 7;
  expected.row_blocks = 3;
  MessageHeader header = expected;
  header.rows = 5;
  header.more_rows = 2;
  EXPECT_FALSE(mismatch(header, expected).has_value());
}

TEST(MessageHeader, EachFieldThatDiffersIsNamed) {
  struct Case {
    std::function<void(MessageHeader&)> change;
    const char* text;
  };
  const Case cases[] = {
      {[](auto& h) { h.magic = 1; }, "magic: found 1, wanted 1162890607"},
      {[](auto& h) { h.version = 2; }, "version: found 2, wanted 1"},
      {[](auto& h) { h.source = 4; }, "source rank: found 4, wanted 0"},
      {[](auto& h) { h.phase = 1; }, "phase: found 1, wanted 0"},
      {[](auto& h) { h.step = 91; }, "step: found 91, wanted 0"},
      {[](auto& h) { h.layer = -1; }, "layer: found -1, wanted 0"},
      {[](auto& h) { h.epoch = 3; }, "placement epoch: found 3, wanted 0"},
      {[](auto& h) { h.rows = -2; }, "rows: found -2, wanted at least 0"},
      {[](auto& h) { h.more_rows = -1; }, "rows to follow: found -1, wanted at least 0"},
      {[](auto& h) { h.row_blocks = 9; }, "blocks per row: found 9, wanted 0"},
      {[](auto& h) { h.status = 2, h.rows = 1; }, "rows of a failed rank: found 1, wanted 0"},
  };
  for (const auto& c : cases) {
    MessageHeader header;
    c.change(header);
    EXPECT_EQ(mismatch(header, MessageHeader{}).value_or("match"), c.text);
  }
}

TEST(MessageHeader, AFailedRankNeedNotKnowTheRowSize) {
  MessageHeader expected;
  expected.row_blocks = 3;
  MessageHeader header;
  header.status = static_cast<std::int32_t>(ErrorCode::input);
  EXPECT_FALSE(mismatch(header, expected).has_value());
}

TEST(Failure, SaysWhatWasFoundAndWanted) {
  Failure failure{ErrorCode::input, MessageError::id_out_of_range, 2, 5, 77};
  EXPECT_TRUE(failure.any());
  EXPECT_FALSE(Failure{}.any());
  EXPECT_EQ(failure.message("dispatch, layer 3", 64),
            "rank 2: expert id 77 in row 5 is outside [0, 64) and not -1 (dispatch, layer 3)");
  failure.detail = MessageError::header_mismatch;
  EXPECT_EQ(failure.message("combine", 64),
            "rank 2: found a message from rank 5 that belongs to another call, wanted one of this call (combine)");
  failure.code = ErrorCode::internal;
  failure.detail = MessageError::stage_failed;
  EXPECT_EQ(failure.message("combine", 64), "rank 2: a stage failed there (internal error), wanted its rows (combine)");
  for (const auto detail : {MessageError::none, MessageError::bad_input, MessageError::abandoned}) {
    failure.detail = detail;
    const std::string text = failure.message("combine", 64);
    EXPECT_EQ(text.rfind("rank 2: ", 0), 0U) << text;
    EXPECT_NE(text.find("(combine)"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace epmoe::comm
