#pragma once
#include <memory>

#include "epmoe/comm/communicator.hpp"
#include "epmoe/comm/expert_group.hpp"
#include "epmoe/core/execution_context.hpp"

/// What every MPI test runs with. MPI is initialised by tests/support/mpi_main.cpp, which also fails a test that
/// leaves MPI objects of ours alive. Rule: no ASSERT_* between collective calls, or the other ranks hang.
namespace epmoe::test {

/// Rank and size of MPI_COMM_WORLD.
int world_rank();
int world_size();

/// Executor with one worker, one workspace set, short deadlines; make one per test.
class TestContext {
 public:
  explicit TestContext(int threads = 1, double hard_seconds = 60.0);
  [[nodiscard]] ExecutionContext& context() { return context_; }
  operator const ExecutionContext&() const { return context_; }  // NOLINT

 private:
  std::unique_ptr<Executor> executor_;
  WorkspaceSet workspaces_;
  ExecutionContext context_;
};

/// A group over all ranks. Collective.
std::shared_ptr<comm::ExpertGroup> world_group(const ExecutionContext& context, const comm::GroupConfig& config = {});

}  // namespace epmoe::test
