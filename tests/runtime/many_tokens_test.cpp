#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "runtime/kernel_fixture.hpp"

/// More tokens than a chunk holds, on small layers: the whole path, in chunks and at once.
namespace epmoe::test {
namespace {

TEST(ManyTokens, FortyAndAHundredThousandMatchTheReferenceInChunksAndAtOnce) {
  const TestContext context;
  const auto group = world_group(context);
  const MoeConfig shape = small_config(24, 16, 8, 2, 8);
  RandomLayer random(shape, DType::f32, 7);
  const auto placement = Placement::linear(shape.experts, world_size());
  for (const std::int64_t tokens : {40000, 100000}) {
    const auto mine = my_tokens(tokens);
    std::vector<float> x(static_cast<std::size_t>(mine.count * shape.hidden)), whole(x.size(), NAN), cut(x.size(), NAN);
    random_hidden_states(3, mine.begin, matrix_view(x.data(), mine.count, shape.hidden));
    const auto x_view = const_matrix_view(x.data(), mine.count, shape.hidden);
    for (std::vector<float>* y : {&cut, &whole}) {
      RunConfig run;
      run.strategy = world_size() == 1 ? "local" : "alltoall";
      run.backend = "native";
      run.compute = ComputeType::bf16;
      run.dispatch = default_dispatch_type(run.compute);
      run.combine = default_combine_type(run.compute);
      run.kernel.chunking = y == &cut;
      MoeLayer layer(group, placement, random.source(), run, context);
      const auto y_view = matrix_view(y->data(), mine.count, shape.hidden);
      const auto routing = layer.route(x_view, context);
      const auto result = layer.forward(x_view, routing.view(), y_view, nullptr, context);
      if (y == &cut) {
        EXPECT_GE(result.chunks, tokens / world_size() / run.kernel.chunk_rows);
      } else {
        EXPECT_EQ(result.chunks, 1);
      }
      const auto verified =
          verify_layer(group->communicator(), random.source(), run, x_view, routing.view(), y_view, context);
      EXPECT_TRUE(verified.ok) << tokens << " tokens, error " << verified.error << ", row " << verified.worst_row;
    }
    EXPECT_EQ(std::memcmp(cut.data(), whole.data(), cut.size() * sizeof(float)), 0) << tokens << " tokens";
  }
}

}  // namespace
}  // namespace epmoe::test
