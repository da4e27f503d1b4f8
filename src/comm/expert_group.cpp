#include "epmoe/comm/expert_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace epmoe::comm {
namespace {

constexpr const char* kWhat = "making the expert group";

void require_range(const char* field, std::int64_t found, std::int64_t least, std::int64_t most) {
  if (found < least || found > most)
    throw ConfigError(fmt::format("{}: found {}, wanted {} to {}", field, found, least, most));
}

/// What members bring along, so that newcomers and old members count on together.
struct Counters {
  std::uint64_t epoch = 0;
  std::uint64_t next_call = 0;
};

/// Collective: nobody has an `error`, the members' settings are valid and equal; returns the highest counters of any.
/// The same calls for newcomers and for those that replace a communicator.
Counters admit(const Communicator& members, const GroupConfig& config, Counters mine, std::exception_ptr error,
               const ExecutionContext& context) {
  if (!error) try {
      config.validate();
      if (members.size() % config.tensor_parallel_size != 0)
        throw ConfigError(fmt::format("tensor_parallel_size: found {}, wanted a divisor of the group's {} ranks",
                                      config.tensor_parallel_size, members.size()));
    } catch (...) {
      error = std::current_exception();
    }
  agree_or_throw(members, error, context, kWhat);
  const std::pair<std::string, std::string> fields[] = {
      {"receive_budget_bytes", std::to_string(config.receive_budget_bytes)},
      {"max_in_flight", std::to_string(config.max_in_flight)},
      {"send_window", std::to_string(config.send_window)},
      {"tensor_parallel_size", std::to_string(config.tensor_parallel_size)},
  };
  check_same(members, fields, context, kWhat);
  Counters highest = mine;
  for (const auto& bytes : members.all_gather(std::as_bytes(std::span(&mine, 1)), context, kWhat)) {
    Counters other;
    std::memcpy(&other, bytes.data(), sizeof(other));
    highest.epoch = std::max(highest.epoch, other.epoch);
    highest.next_call = std::max(highest.next_call, other.next_call);
  }
  return highest;
}

}  // namespace

void GroupConfig::validate() const {
  require_range("receive_budget_bytes", receive_budget_bytes, 1, 1LL << 50);
  require_range("max_in_flight", max_in_flight, 1, 1024);
  require_range("send_window", send_window, 1, 1 << 20);
  require_range("tensor_parallel_size", tensor_parallel_size, 1, 1 << 20);
}

std::shared_ptr<ExpertGroup> ExpertGroup::create(const Communicator& members, const GroupConfig& config,
                                                 const ExecutionContext& context) {
  const Counters counters = admit(members, config, {}, nullptr, context);
  std::shared_ptr<ExpertGroup> group(
      new ExpertGroup(members.duplicate(), config, *context.clock, context.deadlines.hard_seconds));
  group->epoch_ = counters.epoch;
  group->next_call_ = counters.next_call;
  return group;
}

ExpertGroup::ExpertGroup(Communicator comm, const GroupConfig& config, const Clock& clock, double drain_seconds)
    : comm_(std::move(comm)),
      config_(config),
      clock_(&clock),
      drain_seconds_(drain_seconds),
      engine_(comm_.rank(), clock),
      alive_(static_cast<std::size_t>(comm_.size()), true) {}

ExpertGroup::~ExpertGroup() {
  const double start = clock_->now();
  while (engine_.parked() > 0 && !broken()) {
    engine_.progress();
    std::this_thread::yield();
    if (clock_->now() - start > drain_seconds_) engine_.mark_broken();
  }
  engine_.drop_parked();
  if (!broken()) return;
  comm_.leak();
  slots_.leak();
}

void ExpertGroup::replace_communicator(const Communicator& members, const ExecutionContext& context) {
  std::exception_ptr error;
  if (in_flight_ > 0 || engine_.attached() > (broken() ? engine_.parked() : 0))
    error = std::make_exception_ptr(
        InputError(fmt::format("replace_communicator: found {} calls and {} operations in flight, wanted none",
                               in_flight_, engine_.attached()),
                   rank()));
  const Counters counters = admit(members, config_, {epoch_ + 1, next_call_}, error, context);
  Communicator fresh = members.duplicate();
  if (broken()) {
    engine_.drop_parked();
    comm_.leak();
    slots_.leak();
  }
  comm_ = std::move(fresh);
  ProgressEngine engine(comm_.rank(), *context.clock);
  engine.poll_interval_seconds = engine_.poll_interval_seconds;
  engine_ = std::move(engine);
  clock_ = context.clock;
  alive_.assign(static_cast<std::size_t>(comm_.size()), true);
  epoch_ = counters.epoch;
  next_call_ = counters.next_call;
}

std::uint64_t ExpertGroup::begin_call() {
  if (broken()) throw CommError(fmt::format("rank {}: the group is broken, wanted a new one", rank()), rank());
  if (in_flight_ >= config_.max_in_flight)
    throw InputError(fmt::format("calls in flight: found {} unfinished, wanted fewer than max_in_flight = {}",
                                 in_flight_, config_.max_in_flight));
  ++in_flight_;
  return next_call_++;
}

}  // namespace epmoe::comm
