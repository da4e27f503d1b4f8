#include "epmoe/comm/progress_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "comm/rank_list.hpp"

namespace epmoe::comm {
namespace {

/// "dispatch, layer 7, step 91".
std::string describe(const WaitFor& what) {
  std::string text(what.phase);
  if (what.layer >= 0) text += fmt::format(", layer {}", what.layer);
  return text + fmt::format(", step {}", what.step);
}

}  // namespace

void ProgressEngine::attach(Operation& operation) {
  if (find(operation) == nullptr) operations_.push_back(Entry{&operation});
}

void ProgressEngine::detach(Operation& operation) {
  for (auto& entry : operations_)
    if (entry.operation == &operation) entry.operation = nullptr;  // poll may be walking over the list
  if (!polling_) compact();
}

std::int64_t ProgressEngine::attached() const {
  return std::count_if(operations_.begin(), operations_.end(), [](const Entry& e) { return e.operation != nullptr; });
}

void ProgressEngine::park(std::unique_ptr<Operation> operation) {
  attach(*operation);
  Entry* const entry = find(*operation);
  entry->owned = std::move(operation);
}

std::int64_t ProgressEngine::parked() const {
  return std::count_if(operations_.begin(), operations_.end(), [](const Entry& e) { return e.owned != nullptr; });
}

void ProgressEngine::drop_parked() {
  std::vector<std::unique_ptr<Operation>> dropped;  // destructors may detach: not while the list is walked
  for (auto& entry : operations_)
    if (entry.owned) dropped.push_back(std::move(entry.owned)), entry.operation = nullptr;
  compact();
}

ProgressEngine::Entry* ProgressEngine::find(const Operation& operation) {
  for (auto& entry : operations_)
    if (entry.operation == &operation) return &entry;
  return nullptr;
}

void ProgressEngine::compact() {
  std::vector<std::unique_ptr<Operation>> finished;  // destroyed last, since destructors may detach
  for (auto& entry : operations_) {
    if (entry.done && entry.owned) entry.operation = nullptr;
    if (entry.operation == nullptr && entry.owned) finished.push_back(std::move(entry.owned));
  }
  std::erase_if(operations_, [](const Entry& e) { return e.operation == nullptr; });
}

bool ProgressEngine::is_done(const Operation& operation) {
  const Entry* const entry = find(operation);
  return entry == nullptr || entry->done;
}

void ProgressEngine::poll() {
  if (polling_ || broken_) return;  // an operation may compute, and compute calls the hook
  polling_ = true;
  ++polls_;
  try {
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      Operation* const operation = operations_[i].operation;
      if (operation == nullptr || operations_[i].done) continue;
      const bool done = operation->advance();
      if (operations_[i].operation == operation) operations_[i].done = done;
    }
  } catch (...) {  // nobody knows what the peers still get: the group is over
    polling_ = false;
    broken_ = true;
    failure_ = std::current_exception();
    compact();
    throw;
  }
  polling_ = false;
  compact();
}

void ProgressEngine::progress() {
  if (polling_ || broken_) return;
  const double now = clock_->now();
  if (now - last_poll_ < poll_interval_seconds) return;
  last_poll_ = now;
  try {
    poll();
  } catch (...) {  // kept for the next wait: hooks run where an exception cannot be handled
  }
}

void ProgressEngine::wait(Operation& operation, const WaitFor& what, const ExecutionContext& context) {
  if (polling_)
    throw InternalError(fmt::format("rank {}: wait in {} from inside a poll", rank_, describe(what)), rank_);
  const bool was_attached = find(operation) != nullptr;
  if (!was_attached) attach(operation);
  struct Detach {
    ProgressEngine* engine;
    Operation* operation;
    ~Detach() {
      if (operation != nullptr) engine->detach(*operation);
    }
  } detach_at_end{this, was_attached ? nullptr : &operation};

  // Ranks may outnumber cores: give the core away soon. By time too, since a poll of some MPIs takes microseconds.
  constexpr int kSpins = 300;
  constexpr double kSpinSeconds = 20e-6;
  const double start = context.clock->now();
  bool told = false;
  for (int polls = 0;; ++polls) {
    if (is_done(operation)) return;
    if (broken_) {
      if (failure_) std::rethrow_exception(failure_);
      throw CommError(fmt::format("rank {}: the group is broken since an earlier wait failed; found a wait in {}, "
                                  "wanted a new group",
                                  rank_, describe(what)),
                      rank_, std::string(what.phase));
    }
    poll();
    if (is_done(operation)) return;
    double waited = context.clock->now() - start;
    if (polls < kSpins && waited < kSpinSeconds) continue;
    std::this_thread::yield();
    waited = context.clock->now() - start;
    const bool stop = context.stop != nullptr && context.stop->stop_requested();
    if (stop || waited >= context.deadlines.hard_seconds) {
      broken_ = true;
      const auto missing = operation.waiting_for();
      throw TimeoutError(fmt::format("rank {}: {}waited {:.3g} s for {} in {}", rank_,
                                     stop ? "was asked to stop, " : "", waited, rank_list(missing), describe(what)),
                         missing.size() == 1 ? missing[0] : -1, std::string(what.phase));
    }
    if (!told && waited >= context.deadlines.soft_seconds) {
      told = true;
      context.log(LogLevel::warn, fmt::format("rank {}: waiting since {:.3g} s for {} in {}", rank_, waited,
                                              rank_list(operation.waiting_for()), describe(what)));
    }
  }
}

}  // namespace epmoe::comm
