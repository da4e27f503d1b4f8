#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "epmoe/core/workspace.hpp"

/// What a call runs with: threads, clock, deadline, observer, log, scratch memory. Passed down, never global.
namespace epmoe {

/// A reference to a callable that outlives the call; no allocation.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  FunctionRef(F&& f)  // NOLINT: meant to bind to any callable
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))), call_([](void* o, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(o))(std::forward<Args>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

/// Called on the calling thread between tiles of compute; drives communication. Must be cheap (it rate-limits itself).
class ProgressHook {
 public:
  virtual ~ProgressHook() = default;
  virtual void progress() = 0;
};

/// Runs tasks on worker threads. Task order and worker are free; results must not depend on either.
class Executor {
 public:
  virtual ~Executor() = default;
  [[nodiscard]] virtual int workers() const = 0;
  /// Runs body(task, worker) for every task in [0, tasks), worker in [0, workers()), handing tasks out dynamically.
  /// Worker 0 is the calling thread, which calls `hook` (may be null) between its tasks. An exception in a body is
  /// rethrown here after all workers stopped. Tasks see what the caller wrote before, the caller sees afterwards what
  /// tasks wrote; tasks of one run are not ordered among each other.
  virtual void run(std::int64_t tasks, FunctionRef<void(std::int64_t, int)> body, ProgressHook* hook) = 0;
};
/// OpenMP threads. `threads` <= 0 takes what both omp_get_max_threads() and read_cpu_limits() of the calling thread
/// allow. With one worker nothing is spawned; inside a caller's own parallel region OpenMP decides how many threads
/// there are (by default one), and others that the caller's OpenMP keeps spinning are its business.
///
/// With `worker_cpus` (see cpu_limits.hpp) worker w stays on CPU worker_cpus[w] from its first run on: else the system
/// may leave two workers on one core for long. This pins the thread that calls run() first, too: threads that it
/// starts later inherit the one CPU, until the executor is destroyed by the same thread, which undoes it. Runs of other
/// threads and in a parallel region are not pinned, nor is anything where the OpenMP run-time binds threads itself
/// (OMP_PROC_BIND). Throws ConfigError when there are fewer CPUs than threads, or one the calling thread may not use.
std::unique_ptr<Executor> make_openmp_executor(int threads = 0, std::vector<int> worker_cpus = {});

/// Seconds since an arbitrary start. A simulator can take its place.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual double now() const = 0;
};
/// std::chrono::steady_clock.
const Clock& steady_clock();

enum class LogLevel : std::uint8_t { trace, debug, info, warn, error };
/// Where messages go; the library has no other output. Must be thread-safe.
class Logger {
 public:
  virtual ~Logger() = default;
  virtual void log(LogLevel level, std::string_view message) = 0;
};

/// Stages whose time is reported.
enum class Phase : std::uint8_t { route, quantize, dispatch, permute, gemm1, act, gemm2, combine, wait, shared, count };
std::string_view name(Phase phase);

/// Told what happens; calls come from the calling thread of a step only.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void add_time(Phase phase, double seconds) = 0;
  /// One message of `bytes` and `rows` sent to or received from `peer`.
  virtual void message(Phase phase, int peer, bool sent, std::int64_t bytes, std::int64_t rows) = 0;
  /// Rows an owner computed for one of its experts.
  virtual void expert_rows(std::int32_t logical_expert, std::int64_t rows) = 0;
};

/// Ends every wait of the contexts it was given to; thread- and signal-safe. Who is stopped sees what was written
/// before the request.
class StopToken {
 public:
  void request_stop() noexcept { stop_.store(true, std::memory_order_release); }
  [[nodiscard]] bool stop_requested() const noexcept { return stop_.load(std::memory_order_acquire); }

 private:
  static_assert(std::atomic<bool>::is_always_lock_free, "signal handlers must not wait for a lock");
  std::atomic<bool> stop_{false};
};

/// Deadlines of one wait inside an agreed step.
struct Deadlines {
  double soft_seconds = 5.0;    ///< after this long, one log line that names rank, peers, phase, layer, step
  double hard_seconds = 120.0;  ///< after this long, TimeoutError with the same facts
};

/// Non-owning; every pointer but executor, clock and workspaces may be null. One context per call in flight.
struct ExecutionContext {
  Executor* executor = nullptr;
  const Clock* clock = &steady_clock();
  ProgressHook* progress = nullptr;
  Observer* observer = nullptr;
  Logger* logger = nullptr;
  const StopToken* stop = nullptr;
  WorkspaceSet* workspaces = nullptr;
  Deadlines deadlines;

  void log(LogLevel level, std::string_view message) const {
    if (logger != nullptr) logger->log(level, message);
  }
};

/// Adds the time of its scope to a phase.
class PhaseTimer {
 public:
  PhaseTimer(const ExecutionContext& context, Phase phase)
      : context_(context), phase_(phase), start_(context.observer != nullptr ? context.clock->now() : 0.0) {}
  ~PhaseTimer() {
    if (context_.observer != nullptr) context_.observer->add_time(phase_, context_.clock->now() - start_);
  }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  const ExecutionContext& context_;
  Phase phase_;
  double start_;
};

}  // namespace epmoe
