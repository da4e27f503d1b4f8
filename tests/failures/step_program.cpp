#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "epmoe/epmoe.hpp"

/// Steps of a layer with one rank that misbehaves at one step, for tests/failures/failures.py:
///   step_program FAULT RANK STEP DEADLINE_SECONDS [STRATEGY]
/// FAULT: none, stop (SIGSTOP), stuck (own code never returns), kill (SIGKILL), fewer (one step less), more (one more).
/// Leaves as a program that embeds the library should: 3 without MPI_Finalize when communication failed.
namespace {

using namespace epmoe;

void misbehave(const std::string& fault) {
  if (fault == "stop") std::raise(SIGSTOP);
  if (fault == "kill") std::raise(SIGKILL);
  while (fault == "stuck") std::this_thread::sleep_for(std::chrono::seconds(1));
}

class StderrLogger final : public Logger {
 public:
  explicit StderrLogger(int rank) : rank_(rank) {}
  void log(LogLevel, std::string_view message) override { fmt::print(stderr, "[rank {}] {}\n", rank_, message); }

 private:
  int rank_;
};

void run_steps(const std::string& fault, int bad_rank, int bad_step, double deadline, const std::string& strategy) {
  const auto executor = make_openmp_executor(1);
  WorkspaceSet workspaces;
  ExecutionContext context;
  context.executor = executor.get();
  context.workspaces = &workspaces;
  context.clock = &comm::Environment::clock();
  context.deadlines = {deadline / 3, deadline};
  const auto group = comm::ExpertGroup::create(comm::Communicator::world(), {}, context);
  StderrLogger logger(group->rank());
  context.logger = &logger;
  MoeConfig shape;
  shape.hidden = 64;
  shape.intermediate = 32;
  shape.experts = 8;
  shape.top_k = 2;
  RandomLayer random(shape, DType::f32, 1);
  RunConfig config;
  config.strategy = strategy;
  MoeLayer layer(group, Placement::linear(shape.experts, group->size()), random.source(), config, context);
  const std::int64_t tokens = 5;
  std::vector<float> x(static_cast<std::size_t>(tokens * shape.hidden)), y(x.size());
  random_hidden_states(2, group->rank() * tokens, matrix_view(x.data(), tokens, shape.hidden));
  const bool bad = group->rank() == bad_rank;
  const int steps = bad_step + (bad && fault == "fewer" ? 0 : 1) + (bad && fault == "more" ? 1 : 0);
  for (int step = 0; step < steps; ++step) {
    if (bad && step == bad_step) misbehave(fault);
    const auto plan = comm::agree_step(
        *group, {.step = static_cast<std::uint64_t>(step), .tokens = tokens, .placement_epoch = 0}, context);
    layer.forward(const_matrix_view(x.data(), tokens, shape.hidden), matrix_view(y.data(), tokens, shape.hidden), &plan,
                  context);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  comm::Environment environment;
  try {
    run_steps(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), std::atof(argv[4]), argc > 5 ? argv[5] : "alltoall");
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "epmoe: {}\n", error.what());
    std::fflush(nullptr);
    environment.abandon();
    std::_Exit(error.code() == ErrorCode::timeout || error.code() == ErrorCode::comm ? 3 : 2);
  }
}
