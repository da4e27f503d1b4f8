#include "bench_samples.hpp"

#include <gtest/gtest.h>

namespace epmoe::cli {
namespace {

BenchSample sample(double seconds, double read, double dots, double bytes = 10.0) {
  BenchSample s;
  s.seconds = seconds;
  s.expert_bytes = bytes;
  s.read_before = s.read_after = read;
  s.dots_before = s.dots_after = dots;
  s.phase_s.fill(seconds / 10.0);
  return s;
}

BenchSeries series(std::int64_t threads, DotType dot, std::vector<BenchSample> samples) {
  BenchSeries made;
  made.line.threads = threads;
  made.line.flops = 50.0;
  made.dot = dot;
  made.samples = std::move(samples);
  return made;
}

TEST(BenchSamples, MediansOfWhatIsKept) {
  std::vector<BenchSeries> run{
      series(1, DotType::bf16,
             {sample(3.0, 100.0, 20.0, 30.0), sample(1.0, 100.0, 20.0, 10.0), sample(2.0, 100.0, 20.0, 20.0),
              sample(99.0, 89.0, 20.0), sample(98.0, 100.0, 17.0)})};
  run[0].samples[3].read_after = 100.0;  // one low probe of four is enough
  summarise(run);
  const BenchExpertsLine& line = run[0].line;
  EXPECT_EQ(line.repeats, 3);
  EXPECT_EQ(line.rejected, 2);
  EXPECT_TRUE(line.steady);
  EXPECT_DOUBLE_EQ(line.median_s, 2.0);
  EXPECT_DOUBLE_EQ(line.p10_s, 1.2);
  EXPECT_DOUBLE_EQ(line.p90_s, 2.8);
  EXPECT_DOUBLE_EQ(line.expert_bytes, 20.0);
  EXPECT_DOUBLE_EQ(line.read_bytes_per_s, 100.0);
  EXPECT_DOUBLE_EQ(line.peak_flops, 20.0);
  EXPECT_DOUBLE_EQ(line.floor_s, 2.5) << "50 operations at 20, rather than 20 bytes at 100";
  EXPECT_DOUBLE_EQ(line.floor_fraction(), 1.25);
  EXPECT_DOUBLE_EQ(line.phase_s[0], 0.2);
}

TEST(BenchSamples, ACellIsJudgedByTheWholeRun) {
  const BenchSample healthy = sample(1.0, 100.0, 20.0), disturbed = sample(4.0, 50.0, 20.0);
  std::vector<BenchSeries> run{series(1, DotType::bf16, {healthy, healthy, healthy, healthy}),
                               series(1, DotType::bf16, {disturbed, disturbed}),
                               series(1, DotType::bf16, {disturbed, healthy, disturbed})};
  summarise(run);
  EXPECT_EQ(run[0].line.rejected, 0);
  EXPECT_EQ(run[1].line.rejected, 2) << "all alike, and all below the run";
  EXPECT_FALSE(run[1].line.steady);
  EXPECT_EQ(run[1].line.repeats, 2) << "none was kept: all count";
  EXPECT_DOUBLE_EQ(run[1].line.median_s, 4.0);
  EXPECT_EQ(run[2].line.rejected, 2);
  EXPECT_EQ(run[2].line.repeats, 1);
  EXPECT_FALSE(run[2].line.steady);
  EXPECT_DOUBLE_EQ(run[2].line.median_s, 1.0);
}

TEST(BenchSamples, OtherThreadsAndOtherProductsHaveTheirOwnMedians) {
  std::vector<BenchSeries> run{series(1, DotType::bf16, {sample(1.0, 25.0, 20.0), sample(1.0, 25.0, 20.0)}),
                               series(2, DotType::bf16, {sample(1.0, 50.0, 40.0), sample(1.0, 50.0, 40.0)}),
                               series(1, DotType::int8, {sample(1.0, 25.0, 80.0), sample(1.0, 20.0, 80.0)}),
                               series(1, DotType::f32, {sample(1.0, 25.0, 5.0), sample(1.0, 25.0, 5.0)})};
  summarise(run);
  EXPECT_EQ(run[0].line.rejected, 0);
  EXPECT_EQ(run[1].line.rejected, 0);
  EXPECT_EQ(run[2].line.rejected, 1) << "reading is the same for all products";
  EXPECT_EQ(run[3].line.rejected, 0);
  std::vector<BenchSeries> nothing;
  summarise(nothing);
}

}  // namespace
}  // namespace epmoe::cli
