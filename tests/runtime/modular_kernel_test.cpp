#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "epmoe/experts/batched_experts.hpp"
#include "epmoe/experts/reference.hpp"
#include "runtime/kernel_fixture.hpp"

namespace epmoe {
namespace {

using test::small_config;
using test::TestContext;
using test::world_group;
using test::world_rank;
using test::world_size;
using ::testing::HasSubstr;

const char* default_strategy() {
  return world_size() == 1 ? "local" : "alltoall";
}

/// x of this rank and a layer over it.
struct Layer {
  Layer(const MoeConfig& shape, const RunConfig& run, const std::vector<std::int64_t>& tokens,
        const TestContext& context, const comm::GroupConfig& group_config = {}, bool round_robin = false)
      : group(world_group(context, group_config)),
        random(shape, DType::f32, 7),
        placement(round_robin ? Placement::round_robin(shape.experts, world_size())
                              : Placement::linear(shape.experts, world_size())),
        layer(group, placement, random.source(), run, context),
        config(run) {
    std::int64_t first = 0;
    for (int r = 0; r < world_rank(); ++r) first += tokens[static_cast<std::size_t>(r) % tokens.size()];
    rows = tokens[static_cast<std::size_t>(world_rank()) % tokens.size()];
    x.resize(static_cast<std::size_t>(rows * shape.hidden));
    y.assign(x.size(), NAN);
    first_token = first;
    random_hidden_states(3, first, matrix_view(x.data(), rows, shape.hidden));
  }
  [[nodiscard]] ConstMatrixView x_view() const { return const_matrix_view(x.data(), rows, layer.config().hidden); }
  [[nodiscard]] MatrixView y_view() { return matrix_view(y.data(), rows, layer.config().hidden); }
  Verification verify(const Routing& routing, const ExecutionContext& context) {
    return verify_layer(group->communicator(), random.source(), config, x_view(), routing, y_view(), context);
  }
  std::shared_ptr<comm::ExpertGroup> group;
  RandomLayer random;
  std::shared_ptr<const Placement> placement;
  MoeLayer layer;
  RunConfig config;
  std::int64_t rows = 0, first_token = 0;
  std::vector<float> x, y;
};

TEST(ModularKernel, EveryTypeAgreesWithTheReference) {
  const TestContext context;
  for (const auto compute : {ComputeType::f32, ComputeType::bf16, ComputeType::int8})
    for (const auto strategy : {"alltoall", "allgather"})
      for (const std::int64_t shared : {0, 40}) {
        RunConfig run;
        run.strategy = world_size() == 1 ? "local" : strategy;
        run.backend = "native";
        run.compute = compute;
        run.dispatch = default_dispatch_type(compute);
        run.combine = default_combine_type(compute);
        Layer l(small_config(96, 80, 12, 3, shared), run, {11, 0, 5, 17}, context);
        const auto before = l.x;
        const auto routing = l.layer.route(l.x_view(), context);
        const auto result = l.layer.forward(l.x_view(), routing.view(), l.y_view(), nullptr, context);
        const auto verified = l.verify(routing.view(), context);
        EXPECT_TRUE(verified.ok) << fmt::format("{} {} shared {}: error {} worst row {}", name(compute), strategy,
                                                shared, verified.error, verified.worst_row);
        EXPECT_TRUE(before.empty() || std::memcmp(before.data(), l.x.data(), before.size() * sizeof(float)) == 0);
        EXPECT_EQ(result.tokens, l.rows);
        EXPECT_EQ(result.lost_weight.size(), static_cast<std::size_t>(l.rows));
      }
}

TEST(ModularKernel, ExpertsWithoutUpMatchTheReference) {
  const TestContext context;
  for (const auto compute : {ComputeType::f32, ComputeType::bf16, ComputeType::int8}) {
    RunConfig run;
    run.strategy = default_strategy();
    run.backend = "native";
    run.compute = compute;
    run.dispatch = default_dispatch_type(compute);
    run.combine = default_combine_type(compute);
    auto config = small_config(96, 80, 12, 3, 40);
    config.activation = Activation::relu2_no_mul;
    Layer l(config, run, {11, 0, 5, 17}, context);
    const auto routing = l.layer.route(l.x_view(), context);
    l.layer.forward(l.x_view(), routing.view(), l.y_view(), nullptr, context);
    const auto verified = l.verify(routing.view(), context);
    EXPECT_TRUE(verified.ok) << name(compute) << " error " << verified.error;
  }
}

TEST(ModularKernel, ShapesOfTokensAndRoutings) {
  const TestContext context;
  for (const auto& tokens : std::vector<std::vector<std::int64_t>>{{0, 0, 0, 7}, {7, 0, 0, 0}, {44, 1, 1, 0}, {0}})
    for (const auto script :
         {Script::uniform, Script::hot_expert, Script::hot_rank, Script::none, Script::some_none, Script::duplicated}) {
      RunConfig run;
      run.strategy = default_strategy();
      Layer l(small_config(33, 17, 10, 4, 8), run, tokens, context, {}, true);
      const auto routing = scripted_routing(script, l.rows, 4, *l.placement, 5, l.first_token);
      l.layer.forward(l.x_view(), routing.view(), l.y_view(), nullptr, context);
      const auto verified = l.verify(routing.view(), context);
      EXPECT_TRUE(verified.ok) << name(script) << " error " << verified.error << " rank " << world_rank();
    }
}

TEST(ModularKernel, PipelineChunksAndPaddedFormChangeNothing) {
  const TestContext context;
  RunConfig plain;
  plain.strategy = default_strategy();
  Layer base(small_config(64, 48, 9, 3), plain, {23, 4, 0, 9}, context);
  const auto routing = base.layer.route(base.x_view(), context);
  base.layer.forward(base.x_view(), routing.view(), base.y_view(), nullptr, context);
  for (const std::int64_t pipeline : {1, 2, 5})
    for (const std::int64_t chunk : {1, 7, 0}) {
      auto run = plain;
      run.kernel.pipeline = pipeline;
      run.kernel.chunking = chunk > 0;
      if (chunk > 0) run.kernel.chunk_rows = chunk;
      Layer l(small_config(64, 48, 9, 3), run, {23, 4, 0, 9}, context);
      const auto result = l.layer.forward(l.x_view(), routing.view(), l.y_view(), nullptr, context);
      EXPECT_EQ(std::memcmp(l.y.data(), base.y.data(), l.y.size() * sizeof(float)), 0) << pipeline << " " << chunk;
      if (chunk == 1) {
        EXPECT_EQ(result.chunks, result.rows_received);
      }
    }
  // The padded form, through the adaptor.
  ExpertsConfig part;
  part.shape = base.layer.config();
  part.quant = QuantConfig::for_compute(ComputeType::f32);
  part.local_experts = static_cast<std::int64_t>(base.placement->local_slots(world_rank()).size());
  std::shared_ptr<const Experts> experts = make_batched_experts(make_experts("native", part, context));
  auto slots = std::make_shared<ExpertSlots>(experts->packed_layout(), part.local_experts);
  const auto source = base.random.source();
  for (std::int64_t i = 0; i < part.local_experts; ++i)
    slots->pack(
        i, source.expert(base.placement->slot(base.placement->local_slots(world_rank())[static_cast<std::size_t>(i)])
                             .logical_expert));
  PrepareFinalizeConfig wire;
  wire.hidden = 64;
  wire.top_k = 3;
  wire.experts = 9;
  ModularKernel kernel(base.group, make_prepare_finalize(default_strategy(), base.group, wire, context), experts, slots,
                       base.placement, {});
  auto y = base.y;
  std::fill(y.begin(), y.end(), NAN);
  kernel.forward({.x = base.x_view(), .routing = routing.view(), .plan = nullptr, .placement = nullptr, .layer = 0},
                 matrix_view(y.data(), base.rows, 64), context);
  EXPECT_EQ(std::memcmp(y.data(), base.y.data(), y.size() * sizeof(float)), 0);
}

TEST(ModularKernel, SharedExpertsAreTheSameOnBothSidesOfTheThreshold) {
  const TestContext context;
  std::vector<float> results[2];
  for (const int above : {0, 1}) {
    RunConfig run;
    run.strategy = default_strategy();
    run.kernel.shared_token_threshold = above == 1 ? 0 : 256;
    Layer l(small_config(40, 24, 6, 2, 16), run, {5, 9, 0, 3}, context);
    const auto routing = l.layer.route(l.x_view(), context);
    l.layer.forward(l.x_view(), routing.view(), l.y_view(), nullptr, context);
    results[above] = l.y;
    // The pair on request adds up to the sum.
    auto shared = l.y, routed = l.y;
    l.layer.kernel().forward_split(
        {.x = l.x_view(), .routing = routing.view(), .plan = nullptr, .placement = nullptr, .layer = 0},
        {matrix_view(shared.data(), l.rows, 40), matrix_view(routed.data(), l.rows, 40)}, context);
    for (std::size_t i = 0; i < shared.size(); ++i) EXPECT_EQ(routed[i] + shared[i], l.y[i]);
  }
  EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(float)), 0);
}

TEST(ModularKernel, InPlaceAndBf16Output) {
  const TestContext context;
  RunConfig run;
  run.strategy = default_strategy();
  Layer l(small_config(50, 30, 5, 2), run, {6, 2, 8, 1}, context);
  const auto routing = l.layer.route(l.x_view(), context);
  l.layer.forward(l.x_view(), routing.view(), l.y_view(), nullptr, context);
  std::vector<bf16> rounded(l.y.size());
  l.layer.forward(l.x_view(), routing.view(), matrix_view(rounded.data(), l.rows, 50), nullptr, context);
  for (std::size_t i = 0; i < rounded.size(); ++i) EXPECT_EQ(rounded[i], to_bf16(l.y[i]));
  auto x = l.x;
  l.layer.kernel().forward_in_place(routing.view(), matrix_view(x.data(), l.rows, 50), nullptr, 0, context);
  EXPECT_EQ(std::memcmp(x.data(), l.y.data(), x.size() * sizeof(float)), 0);
}

TEST(ModularKernel, ABadRankMakesAllThrowAndTheGroupStaysUsable) {
  const TestContext context;
  RunConfig run;
  run.strategy = default_strategy();
  Layer l(small_config(32, 16, 8, 2), run, {4}, context);
  for (int bad = 0; bad < world_size(); ++bad) {
    auto routing = l.layer.route(l.x_view(), context);
    if (world_rank() == bad) routing.ids()(3, 1) = 8;
    std::string message;
    try {
      l.layer.forward(l.x_view(), routing.view(), l.y_view(), nullptr, context);
    } catch (const InputError& error) {
      message = error.what();
    }
    EXPECT_THAT(message, HasSubstr(fmt::format("rank {}", bad)));
    EXPECT_THAT(message, HasSubstr("8"));
    EXPECT_THAT(message, HasSubstr("row 3"));
    // A bad output on one rank.
    std::vector<float> narrow(static_cast<std::size_t>(l.rows * 31));
    message.clear();
    try {
      const auto y = world_rank() == bad ? matrix_view(narrow.data(), l.rows, 31) : l.y_view();
      l.layer.forward(l.x_view(), l.layer.route(l.x_view(), context).view(), y, nullptr, context);
    } catch (const InputError& error) {
      message = error.what();
    }
    EXPECT_THAT(message, HasSubstr(fmt::format("rank {}", bad)));
    const auto good = l.layer.route(l.x_view(), context);
    l.layer.forward(l.x_view(), good.view(), l.y_view(), nullptr, context);
    EXPECT_TRUE(l.verify(good.view(), context).ok);
  }
}

TEST(ModularKernel, ACallMayBringItsOwnExpertMapIfItFitsTheWeights) {
  const TestContext context;
  RunConfig run;
  run.strategy = default_strategy();
  Layer l(small_config(32, 16, 8, 2), run, {4, 0, 3}, context);
  const auto routing = l.layer.route(l.x_view(), context);
  const auto call = [&](std::shared_ptr<const Placement> placement) {
    l.layer.kernel().forward(
        {.x = l.x_view(), .routing = routing.view(), .plan = nullptr, .placement = std::move(placement), .layer = 0},
        l.y_view(), context);
  };
  // The same experts at the same places, as a table.
  std::vector<std::int32_t> owner, logical;
  for (std::int32_t e = 0; e < 8; ++e) {
    owner.push_back(l.placement->slot(l.placement->replicas(e)[0]).rank);
    logical.push_back(e);
  }
  call(Placement::table(8, world_size(), owner, logical));
  EXPECT_TRUE(l.verify(routing.view(), context).ok);
  // One expert more than the weights.
  EXPECT_THROW(call(Placement::linear(9, world_size())), InputError);
  call(nullptr);
  EXPECT_TRUE(l.verify(routing.view(), context).ok);
}

TEST(ModularKernel, GrowthAfterLockFailsOnAllRanksNamingBytes) {
  const TestContext context;
  RunConfig run;
  run.strategy = default_strategy();
  Layer l(small_config(32, 16, 8, 2), run, {4}, context);
  auto locked = static_cast<const ExecutionContext&>(context);
  WorkspaceSet workspaces;
  l.layer.kernel().reserve(workspaces, 4);
  const auto bytes = workspaces.size();
  locked.workspaces = &workspaces;
  const auto routing = l.layer.route(l.x_view(), context);
  l.layer.forward(l.x_view(), routing.view(), l.y_view(), nullptr, locked);  // fits
  EXPECT_EQ(workspaces.size(), bytes);
  WorkspaceSet tight;
  if (world_rank() == world_size() - 1) tight.lock();  // one rank only
  locked.workspaces = &tight;
  EXPECT_THROW(l.layer.forward(l.x_view(), routing.view(), l.y_view(), nullptr, locked), Error);
  locked.workspaces = &workspaces;
  l.layer.forward(l.x_view(), routing.view(), l.y_view(), nullptr, locked);
  EXPECT_TRUE(l.verify(routing.view(), context).ok);
}

TEST(ModularKernel, NoScratchOnOneRankMakesAllThrow) {
  const TestContext context(1, 10.0);
  RunConfig run;
  run.strategy = default_strategy();
  Layer l(small_config(32, 16, 8, 2, 8), run, {4}, context);  // shared experts need scratch before anything is sent
  const auto routing = l.layer.route(l.x_view(), context);
  auto locked = static_cast<const ExecutionContext&>(context);
  WorkspaceSet tight;
  if (world_rank() == 0) tight.lock();
  locked.workspaces = &tight;
  std::string message;
  try {
    l.layer.forward(l.x_view(), routing.view(), l.y_view(), nullptr, locked);
  } catch (const InternalError& error) {
    message = error.what();
  }
  EXPECT_THAT(message, HasSubstr(world_rank() == 0 ? "result" : "rank 0"));
  l.layer.forward(l.x_view(), routing.view(), l.y_view(), nullptr, context);
  EXPECT_TRUE(l.verify(routing.view(), context).ok);
}

TEST(ModularKernel, OverflowingReceiveBudgetChangesNothing) {
  const TestContext context;
  RunConfig run;
  run.strategy = default_strategy();
  Layer l(small_config(48, 20, 10, 3), run, {37, 5, 0, 12}, context);
  const auto routing = scripted_routing(Script::hot_rank, l.rows, 3, *l.placement, 5, l.first_token);
  l.layer.forward(l.x_view(), routing.view(), l.y_view(), nullptr, context);
  comm::GroupConfig small;
  small.receive_budget_bytes = 2048;
  Layer tight(small_config(48, 20, 10, 3), run, {37, 5, 0, 12}, context, small);
  tight.layer.forward(tight.x_view(), routing.view(), tight.y_view(), nullptr, context);
  EXPECT_EQ(std::memcmp(l.y.data(), tight.y.data(), l.y.size() * sizeof(float)), 0);
}

TEST(ModularKernel, RefusesPartsThatDoNotFit) {
  const TestContext context;
  RunConfig run;
  run.strategy = default_strategy();
  run.kernel.chunk_rows = 0;
  EXPECT_THROW(Layer(small_config(32, 16, 8, 2), run, {4}, context), ConfigError);
  run.kernel.chunk_rows = 16;
  run.kernel.global_num_experts = 7;
  EXPECT_THROW(Layer(small_config(32, 16, 8, 2), run, {4}, context), ConfigError);
  auto top2 = small_config(32, 16, 8, 2);
  top2.router_weight_on_input = true;
  run.kernel.global_num_experts = -1;
  EXPECT_THROW(Layer(top2, run, {4}, context), ConfigError);
}

}  // namespace
}  // namespace epmoe
