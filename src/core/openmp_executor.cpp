#include <fmt/format.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>

#include "core/affinity_mask.hpp"
#include "epmoe/core/cpu_limits.hpp"
#include "epmoe/core/error.hpp"
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

/// Keeps each worker of one calling thread's teams on its CPU.
class Pins {
 public:
  Pins(std::vector<int> cpus, int threads) : cpus_(std::move(cpus)), before_(AffinityMask::of_this_thread()) {
    if (static_cast<int>(cpus_.size()) < threads)
      throw ConfigError(fmt::format("executor: {} threads, {} CPUs to pin them to", threads, cpus_.size()));
    const std::vector<int> usable = before_.cpus();
    for (const int cpu : cpus_)
      if (std::find(usable.begin(), usable.end(), cpu) == usable.end())
        throw ConfigError(fmt::format("executor: CPU {} is not one that this thread may use", cpu));
    cpus_.resize(static_cast<std::size_t>(threads));
    pinned_.resize(cpus_.size());
  }
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;
  ~Pins() {
    if (!owned_ || pthread_equal(owner_, pthread_self()) == 0) return;
#pragma omp parallel num_threads(static_cast<int>(pinned_.size()))
    {
      const std::optional<pthread_t>& mine = pinned_[static_cast<std::size_t>(omp_get_thread_num())];
      if (mine && pthread_equal(*mine, pthread_self()) != 0) (void)before_.apply();
    }
  }

  /// Whether the calling thread's teams are the ones to pin: the first that asks, outside parallel regions.
  bool claim() {
    if (omp_in_parallel() != 0) return false;
    if (!taken_.exchange(true)) {
      owner_ = pthread_self();
      owned_.store(true, std::memory_order_release);
    }
    return owned_.load(std::memory_order_acquire) && pthread_equal(owner_, pthread_self()) != 0;
  }
  void pin(int worker) {
    const auto w = static_cast<std::size_t>(worker);
    // Another executor may have moved the thread since.
    if (pinned_[w] && pthread_equal(*pinned_[w], pthread_self()) != 0 && sched_getcpu() == cpus_[w]) return;
    // Refused if the process lost the CPU meanwhile: then the thread is where it may be, as without pins.
    if (AffinityMask::only(cpus_[w]).apply()) pinned_[w] = pthread_self();
  }

 private:
  std::vector<int> cpus_;
  AffinityMask before_;
  std::vector<std::optional<pthread_t>> pinned_;  // per worker, written by the owner's teams only
  std::atomic<bool> taken_{false}, owned_{false};
  pthread_t owner_{};
};

class OpenMpExecutor final : public Executor {
 public:
  OpenMpExecutor(int threads, std::vector<int> worker_cpus)
      : threads_(threads > 0 ? threads : std::min(omp_get_max_threads(), read_cpu_limits().threads())) {
    if (!worker_cpus.empty() && omp_get_proc_bind() == omp_proc_bind_false)
      pins_.emplace(std::move(worker_cpus), threads_);
  }
  [[nodiscard]] int workers() const override { return threads_; }

  void run(std::int64_t tasks, FunctionRef<void(std::int64_t, int)> body, ProgressHook* hook) override {
    const bool pinned = pins_ && pins_->claim();
    if (threads_ <= 1 || tasks <= 1) {
      if (pinned) pins_->pin(0);
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
#pragma omp parallel num_threads(threads_) default(none) shared(next, failure, tasks, body, hook, pinned)
    {
      const int worker = omp_get_thread_num();
      if (pinned) pins_->pin(worker);
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
  std::optional<Pins> pins_;
};

}  // namespace

std::unique_ptr<Executor> make_openmp_executor(int threads, std::vector<int> worker_cpus) {
  return std::make_unique<OpenMpExecutor>(threads, std::move(worker_cpus));
}

}  // namespace epmoe
