#include "job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "logger.hpp"

namespace epmoe::cli {
namespace {

/// How long a rank with an error waits for the others to have the same.
constexpr double kAgreeSeconds = 10.0;

void print_error(const std::string& prefix, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  fmt::print(stderr, "epmoe: {}{}\n", prefix, message);
  std::fflush(nullptr);
}

}  // namespace

Job::Job() : logger_(make_logger("info", 0)) {
  context_.clock = &comm::Environment::clock();
  context_.workspaces = &workspaces_;
  world_.emplace(comm::Communicator::world());
  errors_.emplace(world_->duplicate());
  set_log_level("info");
}

void Job::set_log_level(const std::string& level) {
  logger_ = make_logger(level, rank());
  context_.logger = logger_.get();
}

void Job::set_timeout(double seconds) {
  context_.deadlines = {std::min(5.0, seconds / 4), seconds};
}

int Job::set_threads(int threads) {
  const auto share = share_cores(*world_, context_);
  if (threads == 0) threads = share.threads;
  executor_ = make_executor(share, threads, context_);
  context_.executor = executor_.get();
  if (first())
    if (const auto warning = starved(share); !warning.empty()) context_.log(LogLevel::warn, warning);
  return threads;
}

std::shared_ptr<comm::ExpertGroup> Job::make_group(const comm::GroupConfig& config) {
  group_ = comm::ExpertGroup::create(*world_, config, context_);
  return group_;
}

void Job::together(FunctionRef<void()> body, const std::string& what) {
  std::exception_ptr mine;
  try {
    body();
  } catch (...) {
    mine = std::current_exception();
  }
  comm::agree_or_throw(*world_, mine, context_, what);
}

void Job::only_first(FunctionRef<void()> body, const std::string& what) {
  together(
      [&] {
        if (first()) body();
      },
      what);
}

int Job::fail(ExitCode code, const std::string& message) {
  if (code == kBadInput) {
    try {
      ExecutionContext context = context_;
      context.logger = nullptr;
      context.deadlines = {kAgreeSeconds, std::min(kAgreeSeconds, context_.deadlines.hard_seconds)};
      const auto bytes = std::as_bytes(std::span(message.data(), message.size()));
      const auto all = errors_->all_gather(bytes, context, "comparing errors");
      const bool same = std::all_of(all.begin(), all.end(), [&](const auto& theirs) { return theirs == all.front(); });
      if (!same) print_error(fmt::format("rank {}: ", rank()), message);
      if (same && first()) print_error("", message);
      errors_->barrier(context, "printing errors");  // the first exit makes launchers end the other ranks
      return code;
    } catch (const std::exception&) {
      // The others have no error, or cannot be reached: this rank ends the job by itself.
    }
  }
  const auto prefix = fmt::format("rank {}: ", rank());
  print_error(message.starts_with(prefix) ? "" : prefix, message);
  std::_Exit(code);
}

}  // namespace epmoe::cli
