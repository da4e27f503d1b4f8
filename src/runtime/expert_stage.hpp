#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "epmoe/core/execution_context.hpp"
#include "epmoe/core/stage_data.hpp"
#include "epmoe/experts/experts.hpp"
#include "epmoe/prepare_finalize/exchange_plan.hpp"
#include "epmoe/runtime/modular_kernel.hpp"

namespace epmoe {

/// workspace13 holds a back end's first workspace and, behind it, the entries' output rows of one chunk (vLLM lets
/// the output reuse workspace 13; here they share one buffer without aliasing).
std::int64_t expert_scratch_bytes(const WorkspaceShapes& shapes, std::int64_t entries, std::int64_t hidden);

/// One call's tokens cut into the slices that are in flight one after another; the same number on all ranks.
class TokenSlices {
 public:
  TokenSlices(const ForwardInput& input, const StepPlan& plan, std::int64_t wanted)
      : input_(&input),
        plan_(&plan),
        count_(std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, plan.max_tokens()))) {
    for (std::int64_t s = 0; s < count_; ++s) plans_.push_back(slice_plan(plan, s, count_));
  }
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] TokenRange range(std::int64_t s) const { return token_slice(input_->x.rows, s, count_); }
  [[nodiscard]] Routing routing(std::int64_t s) const {
    if (count_ == 1) return input_->routing;  // as given, so that a wrong shape is seen by prepare's checks
    return {input_->routing.ids.slice(range(s).begin, range(s).count),
            input_->routing.weights.slice(range(s).begin, range(s).count)};
  }
  [[nodiscard]] MatrixView rows_of(const MatrixView& view, std::int64_t s) const {
    return view.slice(range(s).begin, range(s).count);
  }
  [[nodiscard]] PrepareInput prepare_input(std::int64_t s, const std::shared_ptr<const Placement>& placement,
                                           int rank) const {
    return {.x = input_->x.slice(range(s).begin, range(s).count),
            .routing = routing(s),
            .placement = placement,
            .plan = &plans_[static_cast<std::size_t>(s)],
            .global_first_token = plan_->first_token(rank) + range(s).begin,
            .layer = input_->layer};
  }

 private:
  const ForwardInput* input_;
  const StepPlan* plan_;
  std::int64_t count_;
  std::vector<StepPlan> plans_;
};

/// The context a call's stages run with: the group's engine as progress hook, and an observer that adds what was sent
/// to the call's result and passes everything on.
class TrafficTally final : public Observer {
 public:
  TrafficTally(const ExecutionContext& context, ProgressHook& engine, ForwardResult& result)
      : context_(context), result_(&result), next_(context.observer) {
    context_.observer = this;
    if (context_.progress == nullptr) context_.progress = &engine;
  }
  TrafficTally(const TrafficTally&) = delete;
  TrafficTally& operator=(const TrafficTally&) = delete;
  [[nodiscard]] const ExecutionContext& context() const { return context_; }
  void add_time(Phase phase, double seconds) override {
    if (next_ != nullptr) next_->add_time(phase, seconds);
  }
  void message(Phase phase, int peer, bool sent, std::int64_t bytes, std::int64_t rows) override {
    if (sent) result_->bytes_sent += bytes;
    if (next_ != nullptr) next_->message(phase, peer, sent, bytes, rows);
  }
  void expert_rows(std::int32_t logical_expert, std::int64_t rows) override {
    if (next_ != nullptr) next_->expert_rows(logical_expert, rows);
  }

 private:
  ExecutionContext context_;
  ForwardResult* result_;
  Observer* next_;
};

}  // namespace epmoe
