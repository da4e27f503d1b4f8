#include "epmoe/observe/stage_times.hpp"

#include <gtest/gtest.h>

namespace epmoe {
namespace {

TEST(StageTimes, AddsUpPerPhasePeerAndExpert) {
  StageTimes times(3, 4);
  times.add_time(Phase::gemm1, 0.25);
  times.add_time(Phase::gemm1, 0.5);
  times.add_time(Phase::wait, 1.0);
  times.message(Phase::dispatch, 2, true, 640, 5);
  times.message(Phase::dispatch, 2, true, 64, 0);
  times.message(Phase::dispatch, 1, false, 128, 1);
  times.message(Phase::combine, 2, true, 256, 2);
  times.message(Phase::combine, 0, false, 1LL << 40, 3);
  times.expert_rows(3, 7);
  times.expert_rows(3, 2);

  EXPECT_EQ(times.seconds(Phase::gemm1), 0.75);
  EXPECT_EQ(times.seconds(Phase::wait), 1.0);
  EXPECT_EQ(times.seconds(Phase::route), 0.0);
  EXPECT_EQ(times.dispatch()[2].bytes_sent, 704);
  EXPECT_EQ(times.dispatch()[2].rows_sent, 5);
  EXPECT_EQ(times.dispatch()[2].messages_sent, 2);
  EXPECT_EQ(times.dispatch()[2].messages_received, 0);
  EXPECT_EQ(times.dispatch()[1].bytes_received, 128);
  EXPECT_EQ(times.dispatch()[1].messages_received, 1);
  EXPECT_EQ(times.combine()[2].bytes_sent, 256);
  EXPECT_EQ(times.combine()[0].bytes_received, 1LL << 40);
  EXPECT_EQ(times.combine()[0].rows_received, 3);
  EXPECT_EQ(times.expert_rows(), (std::vector<std::int64_t>{0, 0, 0, 9}));
  EXPECT_EQ(times.bytes_sent(), 704 + 256);

  times.reset();
  EXPECT_EQ(times.seconds(Phase::gemm1), 0.0);
  EXPECT_EQ(times.bytes_sent(), 0);
  EXPECT_EQ(times.combine()[0].bytes_received, 0);
  EXPECT_EQ(times.expert_rows(), (std::vector<std::int64_t>(4, 0)));
}

}  // namespace
}  // namespace epmoe
