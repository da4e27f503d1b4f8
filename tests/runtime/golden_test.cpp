#include "golden/golden.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "runtime/kernel_fixture.hpp"

/// Layers of checkpoints against what Hugging Face's own code gave for them, over ranks, strategies and types.
namespace epmoe {
namespace {

using test::TestContext;
using test::world_rank;
using test::world_size;

struct Types {
  ComputeType compute;
  DispatchType dispatch;
};
constexpr Types kTypes[] = {
    {ComputeType::f32, DispatchType::f32},   {ComputeType::f32, DispatchType::bf16},
    {ComputeType::f32, DispatchType::f16},   {ComputeType::f32, DispatchType::int8},
    {ComputeType::bf16, DispatchType::bf16}, {ComputeType::bf16, DispatchType::int8},
    {ComputeType::int8, DispatchType::int8}, {ComputeType::int8, DispatchType::bf16},
};

/// Relative L2 over the rows of all ranks whose ids agree with Hugging Face's, and how many those are.
struct Comparison {
  double error = 0.0;
  std::int64_t equal_rows = 0;
};

Comparison compare(const test::Golden& golden, const Routing& routing, const std::vector<float>& y, TokenRange mine,
                   const comm::Communicator& comm, const ExecutionContext& context) {
  double sums[3] = {0.0, 0.0, 0.0};
  const auto hidden = golden.config().hidden;
  const auto k = golden.config().top_k;
  for (std::int64_t t = 0; t < mine.count; ++t) {
    bool equal = true;
    for (std::int64_t j = 0; j < k; ++j)
      equal &= routing.ids(t, j) == golden.topk_ids[static_cast<std::size_t>((mine.begin + t) * k + j)];
    if (!equal) continue;
    sums[2] += 1.0;
    for (std::int64_t c = 0; c < hidden; ++c) {
      const double wanted =
          static_cast<double>(golden.moe_output[static_cast<std::size_t>((mine.begin + t) * hidden + c)]);
      const double found = static_cast<double>(y[static_cast<std::size_t>(t * hidden + c)]);
      sums[0] += (found - wanted) * (found - wanted);
      sums[1] += wanted * wanted;
    }
  }
  double all[3] = {0.0, 0.0, 0.0};
  for (const auto& part : comm.all_gather(std::as_bytes(std::span(sums)), context, "comparison")) {
    double values[3];
    std::memcpy(values, part.data(), sizeof values);
    for (int i = 0; i < 3; ++i) all[i] += values[i];
  }
  return {std::sqrt(all[0] / all[1]), static_cast<std::int64_t>(all[2])};
}

class Golden : public ::testing::TestWithParam<test::GoldenCase> {};

TEST_P(Golden, EveryStrategyAndTypeGivesWhatHuggingFaceGives) {
  const TestContext context;
  const auto golden = test::load_golden(GetParam());
  const auto group = test::world_group(context);
  const auto& comm = group->communicator();
  const auto placement = Placement::linear(golden.config().experts, world_size());
  const auto mine = test::my_tokens(golden.tokens);
  const auto x = golden.x(mine.begin, mine.count);
  std::vector<std::string> names{"alltoall", "allgather"};
  if (world_size() == 1) names = {"local", "alltoall"};
  for (const auto& strategy : names)
    for (const auto& types : kTypes) {
      RunConfig run;
      run.strategy = strategy;
      run.backend = "native";
      run.compute = types.compute;
      run.dispatch = types.dispatch;
      run.combine = default_combine_type(types.compute);
      checkpoint::TensorReader reader(*golden.catalog);
      const auto source = layer_source(reader, golden.layer);
      MoeLayer layer(group, placement, source, run, context);
      const auto routing = layer.route(x, context);
      std::vector<float> y(static_cast<std::size_t>(mine.count * golden.config().hidden), NAN);
      const auto out = matrix_view(y.data(), mine.count, golden.config().hidden);
      layer.forward(x, routing.view(), out, nullptr, context);
      const auto found = compare(golden, routing.view(), y, mine, comm, context);
      const auto verified = verify_layer(comm, source, run, x, routing.view(), out, context);

      const bool quantised = types.compute == ComputeType::int8 || types.dispatch == DispatchType::int8;
      const bool rounded = types.compute == ComputeType::bf16 || types.dispatch != DispatchType::f32;
      const double tolerance = rounded ? std::max(1e-2, golden.about.output_tolerance) : golden.about.output_tolerance;
      const auto what = fmt::format("{} {} compute {} dispatch {}", golden.about.name, run.strategy,
                                    name(types.compute), name(types.dispatch));
      EXPECT_GE(static_cast<double>(found.equal_rows), 0.95 * static_cast<double>(golden.tokens)) << what;
      EXPECT_TRUE(verified.ok) << what << ": error " << verified.error << ", worst row " << verified.worst_row;
      EXPECT_LE(found.error, quantised ? 5e-2 : tolerance) << what;  // quantised: the drift of int8
      if (world_rank() == 0)
        fmt::print("golden {:28} {:10} ranks {} compute {:5} dispatch {:5} error {:.2e} alike {:.2e} rows {}/{}\n",
                   golden.about.name, run.strategy, world_size(), name(types.compute), name(types.dispatch),
                   found.error, verified.error, found.equal_rows, golden.tokens);
    }
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, Golden, ::testing::ValuesIn(test::kGoldenCases),
                         [](const auto& about) { return std::string(about.param.name); });

}  // namespace
}  // namespace epmoe
