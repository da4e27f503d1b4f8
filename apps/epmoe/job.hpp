#pragma once
#include <memory>
#include <optional>
#include <string>

#include "epmoe/comm/communicator.hpp"
#include "epmoe/comm/environment.hpp"
#include "epmoe/comm/expert_group.hpp"
#include "epmoe/core/execution_context.hpp"
#include "exit_code.hpp"
#include "launch.hpp"

namespace epmoe::cli {

/// What a command runs in: MPI, all ranks, log, threads. It outlives the command, so an exception that leaves a
/// command on one rank only destroys nothing that is collective.
class Job {
 public:
  Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] int rank() const { return world_->rank(); }
  [[nodiscard]] int size() const { return world_->size(); }
  [[nodiscard]] bool first() const { return rank() == 0; }
  [[nodiscard]] const comm::Communicator& world() const { return *world_; }
  [[nodiscard]] ExecutionContext& context() { return context_; }

  void set_log_level(const std::string& level);
  void set_timeout(double seconds);
  /// Collective. Makes the executor (`threads` 0: this rank's share of the cores) and warns if the binding starves
  /// the job. Returns the number of threads.
  int set_threads(int threads);
  /// Collective: the group over all ranks, kept until the job ends.
  std::shared_ptr<comm::ExpertGroup> make_group(const comm::GroupConfig& config);

  /// Rank 0's result or error on every rank: what only rank 0 does (writing a file) ends the job alike everywhere.
  void only_first(FunctionRef<void()> body, const std::string& what);
  /// Collective: throws on all ranks if `body` throws on any.
  void together(FunctionRef<void()> body, const std::string& what);

  /// Reports an error that ended the command and returns the exit code. An error that all ranks have is printed once;
  /// one of this rank alone, or after which the group is broken, is printed with its rank, and the process leaves at
  /// once without MPI_Finalize, which would wait for the others.
  int fail(ExitCode code, const std::string& message);

 private:
  comm::Environment environment_;
  std::unique_ptr<Logger> logger_;
  std::unique_ptr<Executor> executor_;
  WorkspaceSet workspaces_;
  ExecutionContext context_;
  std::optional<comm::Communicator> world_;
  std::optional<comm::Communicator> errors_;  // its own, so that a rank that is elsewhere in world_ disturbs nothing
  std::shared_ptr<comm::ExpertGroup> group_;
};

}  // namespace epmoe::cli
