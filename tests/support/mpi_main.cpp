#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "epmoe/comm/environment.hpp"
#include "support/world.hpp"

namespace epmoe::test {
namespace {

int g_rank = 0;
int g_size = 1;

/// Ranks other than 0 print failures only; every rank checks that a test frees what it made.
class LiveHandleCheck : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override {
    const auto live = comm::live_handles();
    EXPECT_EQ(live.total(), 0) << "rank " << g_rank << ": alive after the test: " << live.communicators
                               << " communicators, " << live.datatypes << " datatypes, " << live.windows << " windows, "
                               << live.requests << " requests";
  }
};

class FailuresOnly : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed())
      fmt::print(stderr, "[rank {}] {}:{}: {}\n", g_rank, result.file_name() != nullptr ? result.file_name() : "?",
                 result.line_number(), result.message());
  }
  void OnTestEnd(const ::testing::TestInfo& info) override {
    if (info.result()->Failed())
      fmt::print(stderr, "[rank {}] FAILED {}.{}\n", g_rank, info.test_suite_name(), info.name());
  }
};

}  // namespace

int world_rank() {
  return g_rank;
}
int world_size() {
  return g_size;
}

TestContext::TestContext(int threads, double hard_seconds) : executor_(make_openmp_executor(threads)) {
  context_.executor = executor_.get();
  context_.clock = &comm::Environment::clock();
  context_.workspaces = &workspaces_;
  context_.deadlines = {hard_seconds / 4, hard_seconds};
}

std::shared_ptr<comm::ExpertGroup> world_group(const ExecutionContext& context, const comm::GroupConfig& config) {
  return comm::ExpertGroup::create(comm::Communicator::world(), config, context);
}

}  // namespace epmoe::test

int main(int argc, char** argv) {
  using namespace epmoe;
  ::testing::InitGoogleTest(&argc, argv);
  int expected = 0;
  for (int i = 1; i < argc; ++i)
    if (std::strncmp(argv[i], "--ranks=", 8) == 0) expected = std::atoi(argv[i] + 8);
  comm::Environment environment;
  {
    const auto world = comm::Communicator::world();
    test::g_rank = world.rank();
    test::g_size = world.size();
  }
  if (expected != 0 && test::g_size != expected) {
    fmt::print(stderr, "the launcher started {} ranks, the test wants {}\n", test::g_size, expected);
    return 2;
  }
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (test::g_rank != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new test::FailuresOnly);
  }
  listeners.Append(new test::LiveHandleCheck);
  const int result = RUN_ALL_TESTS();
  if (result != 0) {  // ranks may disagree on how far they are: leave without the collective finalize
    environment.abandon();
    std::fflush(nullptr);
    std::_Exit(result);
  }
  return result;
}
