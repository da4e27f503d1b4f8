#include <omp.h>

#include <atomic>
#include <exception>

#include "epmoe/core/execution_context.hpp"

namespace epmoe {
namespace {

/// The first exception of several workers; later ones are dropped.
class FirstException {
 public:
  void capture() noexcept {
    if (!taken_.exchange(true)) exception_ = std::current_exception();
  }
  [[nodiscard]] bool any() const noexcept { return taken_.load(std::memory_order_relaxed); }
  /// Only after all workers stopped.
  void rethrow_if_any() const {
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  std::atomic<bool> taken_{false};
  std::exception_ptr exception_;
};

class OpenMpExecutor final : public Executor {
 public:
  explicit OpenMpExecutor(int threads) : threads_(threads > 0 ? threads : omp_get_max_threads()) {}
  [[nodiscard]] int workers() const override { return threads_; }

  void run(std::int64_t tasks, FunctionRef<void(std::int64_t, int)> body, ProgressHook* hook) override {
    if (threads_ <= 1 || tasks <= 1) {
      for (std::int64_t task = 0; task < tasks; ++task) {
        body(task, 0);
        if (hook != nullptr) hook->progress();
      }
      return;
    }
    std::atomic<std::int64_t> next{0};
    FirstException failure;
    // Always the same team size: libgomp ends threads when a team shrinks and starts them anew when it grows. A
    // caller's own parallel region may grant fewer threads; tasks are taken, not assigned, so that stays right.
#pragma omp parallel num_threads(threads_) default(none) shared(next, failure, tasks, body, hook)
    {
      const int worker = omp_get_thread_num();
      try {
        while (!failure.any()) {
          const std::int64_t task = next.fetch_add(1, std::memory_order_relaxed);
          if (task >= tasks) break;
          body(task, worker);
          if (worker == 0 && hook != nullptr) hook->progress();
        }
      } catch (...) {
        failure.capture();
      }
    }
    failure.rethrow_if_any();
  }

 private:
  int threads_;
};

}  // namespace

std::unique_ptr<Executor> make_openmp_executor(int threads) {
  return std::make_unique<OpenMpExecutor>(threads);
}

}  // namespace epmoe
