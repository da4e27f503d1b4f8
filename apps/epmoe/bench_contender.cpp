#include "bench_contender.hpp"

#include <fmt/format.h>

#include "epmoe/observe/stage_times.hpp"

namespace epmoe::cli {

std::string BackendContender::prepare(const BenchBatches& batches, const SpotCheck& check,
                                      const ExecutionContext& context) {
  batches_ = &batches;
  for (const ExpertSlots& slots : layers_.copies) {
    const MatrixView output = call_.run(*experts_, batches.sets.front().batch, slots, context);
    const SpotCheckResult result = check.compare(output);
    if (!result.differences.empty())
      return fmt::format("{} ({} of {} blocks are wrong)", describe(result.differences.front()),
                         result.differences.size(), result.blocks);
  }
  return {};
}

void BackendContender::run(std::size_t set, BenchSample& sample, const ExecutionContext& context) {
  const ExpertBatch& batch = batches_->sets[set].batch;
  const ExpertSlots& slots = layers_.next();
  StageTimes times(1, batch.local_experts);
  ExecutionContext observed = context;
  observed.observer = &times;
  const double start = context.clock->now();
  (void)call_.run(*experts_, batch, slots, observed);
  sample.seconds = context.clock->now() - start;
  for (std::size_t p = 0; p < sample.phase_s.size(); ++p) sample.phase_s[p] = times.seconds(static_cast<Phase>(p));
}

}  // namespace epmoe::cli
