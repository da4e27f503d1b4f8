#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "bench_report.hpp"
#include "epmoe/core/aligned_memory.hpp"
#include "epmoe/experts/experts.hpp"
#include "epmoe/experts/machine_probe.hpp"

namespace epmoe::cli {

/// One timed call with what the machine gave right before and right after it.
struct BenchSample {
  double seconds = 0.0;
  double expert_bytes = 0.0;                   ///< of the distinct experts that it hit
  double read_before = 0.0, read_after = 0.0;  ///< bytes per second
  double dots_before = 0.0, dots_after = 0.0;  ///< operations per second
  std::array<double, static_cast<std::size_t>(Phase::count)> phase_s{};
};

/// Scratch memory and results of calls, kept between them so that no page is touched for the first time while timed.
class BenchCall {
 public:
  /// Runs the whole batch; sorting the rows by expert is part of the call. Returns the results [entries, hidden] f32.
  MatrixView run(const Experts& experts, const ExpertBatch& batch, const ExpertSlots& slots,
                 const ExecutionContext& context);

 private:
  AlignedBuffer workspace13_, workspace2_, output_;
};

/// `timed` fills in the sample; the probes around it use the same threads.
BenchSample take_sample(MachineProbe& probe, DotType dot, std::int64_t probe_bytes, Executor& executor,
                        FunctionRef<void(BenchSample&)> timed);

/// The samples of one line, and the line but for what they say.
struct BenchSeries {
  BenchExpertsLine line;
  DotType dot = DotType::f32;
  std::vector<BenchSample> samples;
};
/// Fills in the lines of a whole run. A sample counts unless a probe beside it is below 0.9 of the median of that probe
/// over all samples of the run with as many threads: a cell measured while the machine was busy is not its own judge.
void summarise(std::vector<BenchSeries>& run);

}  // namespace epmoe::cli
