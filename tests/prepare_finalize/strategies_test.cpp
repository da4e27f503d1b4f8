/// Every strategy brings every row to its experts and home again: bitwise what the oracle says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "prepare_finalize/round_trip.hpp"

namespace epmoe::test {
namespace {

std::string describe(const Case& c) {
  return fmt::format("{} {}->{} H {} k {} E {}{}{} seed {} tokens {}", c.strategy, name(c.config.dispatch),
                     name(c.config.combine), c.config.hidden, c.config.top_k, c.config.experts,
                     c.config.reproducible ? " reproducible" : "",
                     c.config.router_weight_on_input ? " weight on input" : "", c.seed, c.tokens[0]);
}

/// One call of a fresh strategy; returns the number of differing values on this rank.
void expect_exact(const std::shared_ptr<comm::ExpertGroup>& group, const Case& c, const Input& input,
                  const ExecutionContext& context) {
  const auto strategy = make_prepare_finalize(c.strategy, group, c.config, context);
  EXPECT_EQ(strategy->name(), c.strategy);
  const auto y = round_trip(*strategy, input, c, context);
  EXPECT_EQ(differing(y, oracle(input, c)), 0) << describe(c);
}

void expect_exact(const std::shared_ptr<comm::ExpertGroup>& group, const Case& c, const ExecutionContext& context) {
  expect_exact(group, c, Input(c, random_routing(c)), context);
}

TEST(Strategies, EveryWireTypeBringsRowsHome) {
  const TestContext context;
  const auto group = world_group(context);
  for (const auto& strategy : fitting_strategies())
    for (const auto dispatch : {DispatchType::f32, DispatchType::f16, DispatchType::bf16, DispatchType::int8})
      for (const auto combine : {CombineType::f32, CombineType::bf16})
        for (const bool identity : {true, false}) {
          Case c{.strategy = strategy, .placement = Placement::linear(8, world_size()), .tokens = per_rank({5, 9, 2})};
          c.config.dispatch = dispatch;
          c.config.combine = combine;
          c.identity = identity;
          expect_exact(group, c, context);
        }
}

TEST(Strategies, AnyTokensPerRank) {
  const TestContext context;
  const auto group = world_group(context);
  for (const auto& strategy : fitting_strategies())
    for (const auto& tokens :
         {std::vector<std::int64_t>{0, 0, 0, 7}, {7, 0, 0, 0}, {244, 1, 1, 0}, {50, 20, 25}, {0}, {1}})
      expect_exact(
          group,
          {.strategy = strategy, .placement = Placement::round_robin(8, world_size()), .tokens = per_rank(tokens)},
          context);
}

TEST(Strategies, AnyExpertsAndTopK) {
  const TestContext context;
  const auto group = world_group(context);
  for (const auto& strategy : fitting_strategies())
    for (const std::int64_t experts : {1, 3, 8, 60, 130})
      for (const std::int64_t top_k : {std::int64_t{1}, std::int64_t{2}, (experts + 1) / 2, experts}) {
        Case c{
            .strategy = strategy, .placement = Placement::linear(experts, world_size()), .tokens = per_rank({3, 11})};
        c.config.experts = experts;
        c.config.top_k = top_k;
        c.config.hidden = 7;
        c.seed = static_cast<std::uint64_t>(experts * 1000 + top_k);
        expect_exact(group, c, context);
      }
}

TEST(Strategies, AnyHiddenAndStride) {
  const TestContext context;
  const auto group = world_group(context);
  for (const auto& strategy : fitting_strategies())
    for (const std::int64_t hidden : {1, 7, 100, 2880})
      for (const auto x_type : {DType::f32, DType::f16, DType::bf16}) {
        Case c{.strategy = strategy, .placement = Placement::linear(8, world_size()), .tokens = per_rank({4, 6})};
        c.config.hidden = hidden;
        c.config.dispatch = x_type == DType::f32 ? DispatchType::int8 : DispatchType::bf16;
        c.x_type = x_type;
        c.stride = hidden + 5;
        expect_exact(group, c, context);
      }
}

TEST(Strategies, SkewedRouting) {
  const TestContext context;
  const auto group = world_group(context);
  for (const auto& strategy : fitting_strategies()) {
    const Case c{.strategy = strategy, .placement = Placement::linear(8, world_size()), .tokens = per_rank({13, 6})};
    const auto tokens = c.tokens[static_cast<std::size_t>(world_rank())];
    for (const std::int32_t only : {0, 7, static_cast<int>(kNoExpert)}) {
      OwnedRouting routing(tokens, 2);  // all tokens to one expert, twice; or to none
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t k = 0; k < 2; ++k) {
          routing.ids()(t, k) = only;
          routing.weights()(t, k) = 0.25F + static_cast<float>(k);
        }
      expect_exact(group, c, Input(c, std::move(routing)), context);
    }
    OwnedRouting one_rank(tokens, 2);  // all tokens to the experts of the last rank
    const auto slots = c.placement->local_slots(world_size() - 1);
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t k = 0; k < 2; ++k) {
        const auto slot = slots[static_cast<std::size_t>(t + k) % slots.size()];
        one_rank.ids()(t, k) = c.placement->slot(slot).logical_expert;
        one_rank.weights()(t, k) = 0.5F;
      }
    expect_exact(group, c, Input(c, std::move(one_rank)), context);
  }
}

TEST(Strategies, ReplicasAndUnevenTables) {
  const TestContext context;
  const auto group = world_group(context);
  std::vector<std::int32_t> owner, logical;
  for (std::int32_t e = 0; e < 5; ++e) {
    owner.push_back((e * 3 + 1) % world_size());
    logical.push_back(e);
  }
  for (std::int32_t r = 0; r < world_size(); ++r)  // expert 2 on every rank
    if (r != owner[2]) {
      owner.push_back(r);
      logical.push_back(2);
    }
  for (const auto& strategy : fitting_strategies()) {
    Case c{.strategy = strategy,
           .placement = Placement::table(5, world_size(), owner, logical),
           .tokens = per_rank({20, 3})};
    c.config.experts = 5;
    expect_exact(group, c, context);
  }
}

TEST(Strategies, WeightOnInput) {
  const TestContext context;
  const auto group = world_group(context);
  for (const auto& strategy : fitting_strategies())
    for (const auto dispatch : {DispatchType::f32, DispatchType::int8}) {
      Case c{.strategy = strategy, .placement = Placement::linear(8, world_size()), .tokens = per_rank({9, 4})};
      c.config.top_k = 1;
      c.config.router_weight_on_input = true;
      c.config.dispatch = dispatch;
      expect_exact(group, c, context);
    }
}

TEST(Strategies, InputMayChangeOnceItIsOnItsWay) {
  const TestContext context;
  const auto group = world_group(context);
  for (const auto& strategy : fitting_strategies()) {
    const Case c{.strategy = strategy, .placement = Placement::linear(8, world_size()), .tokens = per_rank({30, 12})};
    const auto part = make_prepare_finalize(strategy, group, c.config, context);
    Input input(c, random_routing(c));
    const auto wanted = oracle(input, c);
    auto pending = part->prepare_async(input.prepare(c), context);
    std::fill(input.memory.begin(), input.memory.end(), std::byte{0xff});
    for (std::int64_t t = 0; t < input.x.rows; ++t)
      for (std::int64_t k = 0; k < 2; ++k) {
        input.routing.ids()(t, k) = 99;
        input.routing.weights()(t, k) = -1.0F;
      }
    EXPECT_EQ(differing(finish_call(*part, pending->receive(), input, c, context), wanted), 0);
  }
}

TEST(Strategies, NaNStaysInItsRow) {
  const TestContext context;
  const auto group = world_group(context);
  for (const auto& strategy : fitting_strategies())
    for (const auto dispatch : {DispatchType::f32, DispatchType::int8}) {
      Case c{.strategy = strategy, .placement = Placement::linear(8, world_size()), .tokens = per_rank({8})};
      c.config.dispatch = dispatch;
      Input input(c, random_routing(c));
      reinterpret_cast<float*>(input.memory.data())[3 * c.config.hidden + 2] = std::numeric_limits<float>::quiet_NaN();
      const auto part = make_prepare_finalize(strategy, group, c.config, context);
      const auto y = round_trip(*part, input, c, context);
      EXPECT_EQ(differing(y, oracle(input, c)), 0);
      for (std::int64_t i = 0; i < 8 * c.config.hidden; ++i)
        if (i / c.config.hidden != 3) {
          EXPECT_FALSE(std::isnan(y[static_cast<std::size_t>(i)])) << i;
        }
    }
}

TEST(Strategies, SeededFaultsAreFound) {
  const TestContext context;
  const auto group = world_group(context);
  for (const auto& strategy : fitting_strategies())
    for (const bool reproducible : {false, true})
      for (const auto fault : {Fault::swap_two_experts, Fault::drop_rows_of_rank_0, Fault::shift_a_weight}) {
        Case c{.strategy = strategy, .placement = Placement::linear(8, world_size()), .tokens = per_rank({12})};
        c.config.reproducible = reproducible;
        const auto part = make_prepare_finalize(strategy, group, c.config, context);
        const Input input(c, random_routing(c));
        EXPECT_GT(over_ranks(differing(round_trip(*part, input, c, context, fault), oracle(input, c)), context), 0);
        EXPECT_EQ(over_ranks(differing(round_trip(*part, input, c, context), oracle(input, c)), context), 0);
      }
}

}  // namespace
}  // namespace epmoe::test
