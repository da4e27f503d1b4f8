#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "epmoe/core/execution_context.hpp"

namespace epmoe::comm {

/// Something under way that moves on when polled: a state machine over request sets.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Does what can be done without blocking; true once there is nothing left to do. Must not throw for a peer's
  /// fault: it records it, and the owner throws when asked for the result.
  virtual bool advance() = 0;
  /// Ranks of the group this operation still needs something from (for timeout messages).
  [[nodiscard]] virtual std::vector<int> waiting_for() const = 0;
};

/// What a wait is for; all of it appears in messages.
struct WaitFor {
  std::string_view phase;   ///< "dispatch", "combine", "step plan", …
  std::int64_t layer = -1;
  std::uint64_t step = 0;
};

/// One per group: owns the polling of all live operations. Every poll, hook, wait and tile hook drives all of them,
/// and nothing in the library blocks outside it. Operations attach while alive. One thread at a time.
class ProgressEngine final : public ProgressHook {
 public:
  ProgressEngine(int rank, const Clock& clock) : rank_(rank), clock_(&clock) {}
  void attach(Operation& operation);
  void detach(Operation& operation);
  /// Takes over an operation whose owner is gone: driven like the attached ones until it is done, then destroyed. So
  /// a dropped call still answers its peers. The group's destructor drives what is parked within a deadline.
  void park(std::unique_ptr<Operation> operation);
  [[nodiscard]] std::int64_t parked() const { return static_cast<std::int64_t>(parked_.size()); }
  /// Drives all operations once.
  void poll();
  /// poll() at most every `poll_interval_seconds`; what compute calls between tiles.
  void progress() override;
  /// Drives everything until `operation` is done (it need not be attached): spins briefly, then yields the core between polls. Soft deadline:
  /// one log line; hard deadline or stop request: marks the engine broken and throws TimeoutError
  /// "rank 2: waited 120 s for ranks 1, 3 in dispatch, layer 7, step 91".
  void wait(Operation& operation, const WaitFor& what, const ExecutionContext& context);
  /// After a TimeoutError nothing may be sent or waited for any more.
  [[nodiscard]] bool broken() const { return broken_; }
  void mark_broken() { broken_ = true; }
  [[nodiscard]] std::int64_t polls() const { return polls_; }
  [[nodiscard]] int rank() const { return rank_; }
  double poll_interval_seconds = 50e-6;

 private:
  int rank_;
  const Clock* clock_;
  std::vector<Operation*> operations_;
  std::vector<std::unique_ptr<Operation>> parked_;
  double last_poll_ = 0.0;
  std::int64_t polls_ = 0;
  bool broken_ = false;
  bool polling_ = false;
};

}  // namespace epmoe::comm
