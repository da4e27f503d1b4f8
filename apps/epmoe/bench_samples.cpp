#include "bench_samples.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "quantiles.hpp"

namespace epmoe::cli {
namespace {

constexpr double kLeastProbe = 0.9;  // of the median over the run

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

/// Medians of the probes of a run, by what they depend on.
class RunMedians {
 public:
  explicit RunMedians(const std::vector<BenchSeries>& run) {
    std::map<std::int64_t, std::vector<double>> read;
    std::map<std::pair<DotType, std::int64_t>, std::vector<double>> dots;
    for (const BenchSeries& series : run)
      for (const BenchSample& s : series.samples) {
        const std::int64_t threads = series.line.threads;
        read[threads].insert(read[threads].end(), {s.read_before, s.read_after});
        auto& rates = dots[{series.dot, threads}];
        rates.insert(rates.end(), {s.dots_before, s.dots_after});
      }
    for (const auto& [threads, rates] : read) read_[threads] = quantile(rates, 0.5);
    for (const auto& [key, rates] : dots) dots_[key] = quantile(rates, 0.5);
  }
  [[nodiscard]] bool undisturbed(const BenchSeries& series, const BenchSample& s) const {
    return std::min(s.read_before, s.read_after) >= kLeastProbe * read_.at(series.line.threads) &&
           std::min(s.dots_before, s.dots_after) >= kLeastProbe * dots_.at({series.dot, series.line.threads});
  }

 private:
  std::map<std::int64_t, double> read_;
  std::map<std::pair<DotType, std::int64_t>, double> dots_;
};

void fill_in(const BenchSeries& series, const RunMedians& medians, BenchExpertsLine& line) {
  const auto& samples = series.samples;
  std::vector<BenchSample> kept;
  for (const BenchSample& s : samples)
    if (medians.undisturbed(series, s)) kept.push_back(s);
  line.rejected = static_cast<std::int64_t>(samples.size() - kept.size());
  line.steady = 2 * kept.size() >= samples.size();
  if (kept.empty()) kept = samples;  // reported as not steady
  line.repeats = static_cast<std::int64_t>(kept.size());

  Probes probes;
  std::vector<double> seconds, bytes;
  for (const BenchSample& s : kept) {
    probes.add(s);
    seconds.push_back(s.seconds);
    bytes.push_back(s.expert_bytes);
    for (std::size_t p = 0; p < s.phase_s.size(); ++p)
      line.phase_s[p] += s.phase_s[p] / static_cast<double>(kept.size());
  }
  line.median_s = quantile(seconds, 0.5);
  line.p10_s = quantile(seconds, 0.1);
  line.p90_s = quantile(seconds, 0.9);
  line.expert_bytes = quantile(bytes, 0.5);
  line.read_bytes_per_s = quantile(probes.read, 0.5);
  line.peak_flops = quantile(probes.dots, 0.5);
  line.floor_s = std::max(line.expert_bytes / line.read_bytes_per_s, line.flops / line.peak_flops);
}

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

BenchSample take_sample(MachineProbe& probe, DotType dot, std::int64_t probe_bytes, Executor& executor,
                        FunctionRef<void(BenchSample&)> timed) {
  BenchSample sample;
  sample.dots_before = probe.dots_per_s(dot, executor);
  sample.read_before = probe.read_bytes_per_s(executor, probe_bytes);
  timed(sample);
  sample.dots_after = probe.dots_per_s(dot, executor);
  sample.read_after = probe.read_bytes_per_s(executor, probe_bytes);
  return sample;
}

void summarise(std::vector<BenchSeries>& run) {
  const RunMedians medians(run);
  for (BenchSeries& series : run) fill_in(series, medians, series.line);
}

}  // namespace epmoe::cli
