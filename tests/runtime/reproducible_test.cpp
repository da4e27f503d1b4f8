#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "runtime/kernel_fixture.hpp"

/// `--reproducible`: the same bits for any number of ranks, threads, chunk size, pipeline and strategy. Every rank
/// computes the whole answer alone first (a group of one, `local`), then its part of the job.
namespace epmoe {
namespace {

using test::TestContext;
using test::world_rank;
using test::world_size;

std::vector<float> run_layer(const std::shared_ptr<comm::ExpertGroup>& group, RandomLayer& random,
                             const RunConfig& config, std::int64_t first, std::int64_t rows,
                             const ExecutionContext& context) {
  const auto source = random.source();
  const auto hidden = source.config.hidden;
  MoeLayer layer(group, Placement::linear(source.config.experts, group->size()), source, config, context);
  std::vector<float> x(static_cast<std::size_t>(rows * hidden)), y(x.size(), NAN);
  random_hidden_states(11, first, matrix_view(x.data(), rows, hidden));
  layer.forward(const_matrix_view(x.data(), rows, hidden), matrix_view(y.data(), rows, hidden), nullptr, context);
  return y;
}

void check(const MoeConfig& shape, ComputeType compute, std::int64_t tokens, const std::vector<std::int64_t>& chunks) {
  const TestContext one_thread(1), two_threads(2);
  RandomLayer random(shape, DType::f32, 21);
  RunConfig config;
  config.backend = "native";
  config.compute = compute;
  config.dispatch = default_dispatch_type(compute);
  config.combine = CombineType::f32;
  config.reproducible = true;
  const auto alone = comm::ExpertGroup::create(comm::Communicator::self(), {}, one_thread);
  config.strategy = "local";
  const auto whole = run_layer(alone, random, config, 0, tokens, one_thread);

  const auto mine = test::my_tokens(tokens);
  const auto* wanted = whole.data() + mine.begin * shape.hidden;
  const auto group = test::world_group(one_thread);
  for (const std::string strategy : {"alltoall", "allgather"})
    for (const auto chunk : chunks)
      for (const int threads : {1, 2}) {
        auto run = config;
        run.strategy = world_size() == 1 ? "local" : strategy;
        run.kernel.chunking = chunk > 0;
        if (chunk > 0) run.kernel.chunk_rows = chunk;
        run.kernel.pipeline = chunk == 7 ? 3 : 1;
        const auto found =
            run_layer(group, random, run, mine.begin, mine.count, threads == 1 ? one_thread : two_threads);
        EXPECT_TRUE(found.empty() || std::memcmp(found.data(), wanted, found.size() * sizeof(float)) == 0)
            << strategy << " " << name(compute) << " chunk " << chunk << " threads " << threads << " H " << shape.hidden
            << " tokens " << tokens << " rank " << world_rank();
      }
}

TEST(Reproducible, SameBitsForRanksThreadsChunksStrategies) {
  for (const auto compute : {ComputeType::f32, ComputeType::bf16, ComputeType::int8})
    check(test::small_config(96, 40, 12, 4, 24), compute, 61, {1, 7, 128, 0});
}

TEST(Reproducible, LongSumsAndFewRows) {
  for (const std::int64_t hidden : {2048, 7168})
    for (const std::int64_t tokens : {1, 2, 3, 17, 64})
      check(test::small_config(hidden, 16, 8, 2), ComputeType::bf16, tokens, {7});
}

}  // namespace
}  // namespace epmoe
