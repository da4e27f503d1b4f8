#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "bench_layers.hpp"
#include "bench_report.hpp"
#include "epmoe/experts/machine_probe.hpp"

namespace epmoe::cli {

/// One timed call with what the machine gave right before and right after it.
struct BenchSample {
  double seconds = 0.0;
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

BenchSample take_sample(BenchCall& call, MachineProbe& probe, DotType dot, std::int64_t probe_bytes,
                        const Experts& experts, const ExpertBatch& batch, const ExpertSlots& slots,
                        ExecutionContext context);

/// Fills in what samples say. `all` are those of everything measured side by side, for their median probes: samples
/// with a probe below 0.9 of that median are rejected.
void summarise(const std::vector<BenchSample>& samples, const std::vector<std::vector<BenchSample>>& all,
               BenchExpertsLine& line);

}  // namespace epmoe::cli
