#include "bench_samples.hpp"

#include <algorithm>
#include <cstring>

#include "epmoe/observe/stage_times.hpp"
#include "quantiles.hpp"

namespace epmoe::cli {
namespace {

constexpr double kLeastProbe = 0.9;  // of the median

void grow(AlignedBuffer& buffer, std::int64_t bytes) {
  if (buffer.size() >= bytes) return;
  buffer = AlignedBuffer();  // first, so that both are never there together
  buffer = AlignedBuffer(bytes);
  std::memset(buffer.data(), 0, static_cast<std::size_t>(bytes));
}

struct Probes {
  std::vector<double> read, dots;
  void add(const BenchSample& s) {
    read.insert(read.end(), {s.read_before, s.read_after});
    dots.insert(dots.end(), {s.dots_before, s.dots_after});
  }
};

}  // namespace

MatrixView BenchCall::run(const Experts& experts, const ExpertBatch& batch, const ExpertSlots& slots,
                          const ExecutionContext& context) {
  const std::int64_t entries = batch.routing.entries();
  const WorkspaceShapes shapes = experts.workspace_shapes(batch.rows(), entries);
  grow(workspace13_, shapes.workspace13_bytes);
  grow(workspace2_, shapes.workspace2_bytes);
  grow(output_, entries * batch.hidden * 4);
  const MatrixView output = matrix_view(output_.as<float>(), entries, batch.hidden);
  ExpertIndex index;
  {
    const PhaseTimer timer(context, Phase::permute);
    index = index_by_expert(batch, 0, batch.rows());
  }
  experts.apply(batch, index, slots, workspace13_.data(), workspace2_.data(), output, context);
  return output;
}

BenchSample take_sample(BenchCall& call, MachineProbe& probe, DotType dot, std::int64_t probe_bytes,
                        const Experts& experts, const ExpertBatch& batch, const ExpertSlots& slots,
                        ExecutionContext context) {
  StageTimes times(1, batch.local_experts);
  context.observer = &times;
  BenchSample sample;
  sample.dots_before = probe.dots_per_s(dot, *context.executor);
  sample.read_before = probe.read_bytes_per_s(*context.executor, probe_bytes);
  const double start = context.clock->now();
  (void)call.run(experts, batch, slots, context);
  sample.seconds = context.clock->now() - start;
  sample.dots_after = probe.dots_per_s(dot, *context.executor);
  sample.read_after = probe.read_bytes_per_s(*context.executor, probe_bytes);
  for (std::size_t p = 0; p < sample.phase_s.size(); ++p) sample.phase_s[p] = times.seconds(static_cast<Phase>(p));
  return sample;
}

void summarise(const std::vector<BenchSample>& samples, const std::vector<std::vector<BenchSample>>& all,
               BenchExpertsLine& line) {
  Probes run;
  for (const auto& series : all)
    for (const BenchSample& s : series) run.add(s);
  const double read = quantile(run.read, 0.5), dots = quantile(run.dots, 0.5);
  std::vector<BenchSample> kept;
  for (const BenchSample& s : samples)
    if (std::min(s.read_before, s.read_after) >= kLeastProbe * read &&
        std::min(s.dots_before, s.dots_after) >= kLeastProbe * dots)
      kept.push_back(s);
  line.rejected = static_cast<std::int64_t>(samples.size() - kept.size());
  line.steady = 2 * kept.size() >= samples.size();
  if (kept.empty()) kept = samples;  // reported as not steady
  line.repeats = static_cast<std::int64_t>(kept.size());

  Probes probes;
  std::vector<double> seconds;
  for (const BenchSample& s : kept) {
    probes.add(s);
    seconds.push_back(s.seconds);
    for (std::size_t p = 0; p < s.phase_s.size(); ++p)
      line.phase_s[p] += s.phase_s[p] / static_cast<double>(kept.size());
  }
  line.median_s = quantile(seconds, 0.5);
  line.p10_s = quantile(seconds, 0.1);
  line.p90_s = quantile(seconds, 0.9);
  line.read_bytes_per_s = quantile(probes.read, 0.5);
  line.peak_flops = quantile(probes.dots, 0.5);
  line.floor_s = std::max(line.expert_bytes / line.read_bytes_per_s, line.flops / line.peak_flops);
}

}  // namespace epmoe::cli
