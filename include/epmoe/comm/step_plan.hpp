#pragma once
#include <memory>

#include "epmoe/comm/expert_group.hpp"
#include "epmoe/core/stage_data.hpp"

namespace epmoe::comm {

/// What one rank brings to a step's agreement.
struct StepVote {
  std::uint64_t step = 0;
  std::int64_t tokens = 0;
  std::uint64_t placement_epoch = 0;
  bool micro_batch = false;  ///< this rank can split
  bool stop = false;
};

/// A step's agreement under way: 64 bytes from every rank to every other. Start it early, pass the result to
/// every layer of the step.
class PendingStepPlan {
 public:
  virtual ~PendingStepPlan() = default;  ///< an unfinished one is waited for within its deadline
  virtual bool poll() = 0;
  /// Waits. Throws the same CommError on all ranks if step numbers or placement epochs differ (naming rank, found,
  /// wanted), TimeoutError past the deadline.
  virtual StepPlan receive() = 0;
};

/// Collective, in the same order on all ranks. `context` must outlive the result.
std::unique_ptr<PendingStepPlan> begin_step(ExpertGroup& group, const StepVote& vote, const ExecutionContext& context);
inline StepPlan agree_step(ExpertGroup& group, const StepVote& vote, const ExecutionContext& context) {
  return begin_step(group, vote, context)->receive();
}

}  // namespace epmoe::comm
