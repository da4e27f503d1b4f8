#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "epmoe/core/error.hpp"
#include "epmoe/core/execution_context.hpp"

namespace epmoe::comm {

/// Something under way that moves on when polled: a state machine over request sets.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Does what can be done without blocking; true once there is nothing left to do, after which it is not called any
  /// more. Never called again before it has returned. Must not throw for a peer's fault: it records it, and the owner
  /// throws when asked for the result. What it does throw breaks the group.
  virtual bool advance() = 0;
  /// Ranks of the group this operation still needs something from (for timeout messages).
  [[nodiscard]] virtual std::vector<int> waiting_for() const = 0;
};

/// What a wait is for; all of it appears in messages.
struct WaitFor {
  std::string_view phase;  ///< "dispatch", "combine", "step plan", …
  std::int64_t layer = -1;
  std::uint64_t step = 0;
};

/// One per group: owns the polling of all live operations. Every poll, hook, wait and tile hook drives all of them,
/// and nothing in the library blocks outside it. Operations attach while alive. One thread at a time.
class ProgressEngine final : public ProgressHook {
 public:
  ProgressEngine(int rank, const Clock& clock) : rank_(rank), clock_(&clock) {}
  /// Both may be called from inside advance(). An operation stays attached when it is done, until detached.
  void attach(Operation& operation);
  void detach(Operation& operation);
  [[nodiscard]] std::int64_t attached() const;
  /// Takes over an operation whose owner is gone: driven like the attached ones until it is done, then destroyed. So
  /// a dropped call still answers its peers. The group's destructor drives what is parked within a deadline; what is
  /// then left, and all that is parked on a broken engine, is destroyed with broken() true: its destructor leaks.
  void park(std::unique_ptr<Operation> operation);
  [[nodiscard]] std::int64_t parked() const;
  /// Destroys what is parked, done or not.
  void drop_parked();
  /// Drives all operations once; nothing if called from inside one, or once broken.
  void poll();
  /// poll() at most every `poll_interval_seconds`; what compute calls between tiles. Never throws: a failure is kept
  /// for the next wait.
  void progress() override;
  /// Drives everything until `operation` is done: spins briefly, then yields the core between polls. Soft deadline:
  /// one log line; hard deadline or stop request: marks the engine broken and throws TimeoutError
  /// "rank 2: waited 120 s for ranks 1, 3 in dispatch, layer 7, step 91". An operation that is not attached is for as
  /// long as the wait lasts. On a broken engine it returns only for an operation that was done before, else throws.
  void wait(Operation& operation, const WaitFor& what, const ExecutionContext& context);
  /// After a TimeoutError nothing may be sent or waited for any more.
  [[nodiscard]] bool broken() const { return broken_; }
  void mark_broken() { broken_ = true; }
  [[nodiscard]] std::int64_t polls() const { return polls_; }
  [[nodiscard]] int rank() const { return rank_; }
  double poll_interval_seconds = 50e-6;

 private:
  struct Entry {
    Operation* operation;  ///< null once detached during a poll
    bool done = false;
    std::unique_ptr<Operation> owned = nullptr;  ///< parked
  };
  Entry* find(const Operation& operation);
  bool is_done(const Operation& operation);
  void compact();
  int rank_;
  const Clock* clock_;
  std::vector<Entry> operations_;
  std::exception_ptr failure_;  ///< what advance() threw
  double last_poll_ = 0.0;
  std::int64_t polls_ = 0;
  bool broken_ = false;
  bool polling_ = false;
};

}  // namespace epmoe::comm
