/// Reproducible mode gives the same bits whoever owns the experts and however rows travel.
#include <gtest/gtest.h>

#include "prepare_finalize/round_trip.hpp"

namespace epmoe::test {
namespace {

TEST(Reproducible, SameBitsForAnyRanksPlacementAndStrategy) {
  const TestContext context;
  const auto world = world_group(context);
  comm::GroupConfig tight;
  tight.receive_budget_bytes = 1;
  const auto tight_world = world_group(context, tight);
  const auto alone = comm::ExpertGroup::create(comm::Communicator::self(), {}, context);
  for (const auto dispatch : {DispatchType::f32, DispatchType::bf16, DispatchType::int8}) {
    Case c{.placement = Placement::linear(12, world_size()), .tokens = per_rank({17, 0, 23})};
    c.config.experts = 12;
    c.config.top_k = 5;
    c.config.hidden = 100;
    c.config.dispatch = dispatch;
    c.config.reproducible = true;
    const Input input(c, random_routing(c));

    // Each rank by itself: all experts here, nothing travels.
    auto single = c;
    single.placement = Placement::linear(12, 1);
    auto own = input.prepare(single);
    StepPlan own_plan;
    own_plan.tokens = {input.x.rows};
    own.plan = &own_plan;
    const auto local = make_prepare_finalize("local", alone, c.config, context);
    const auto wanted = finish_call(*local, local->prepare(own, context), input, single, context);
    EXPECT_EQ(differing(wanted, oracle(input, c)), 0);

    for (const auto& strategy : fitting_strategies())
      for (const auto& placement : {Placement::linear(12, world_size()), Placement::round_robin(12, world_size())})
        for (const auto& group : {world, tight_world}) {
          c.placement = placement;
          const auto part = make_prepare_finalize(strategy, group, c.config, context);
          EXPECT_EQ(part->output_rows(), OutputRows::per_entry);
          EXPECT_EQ(differing(round_trip(*part, input, c, context), wanted), 0) << strategy;
        }
  }
}

/// The other mode rounds each rank's partial sum: same bits for the same ranks, whatever the strategy.
TEST(Reproducible, StrategiesAgreeInTheDefaultMode) {
  const TestContext context;
  const auto group = world_group(context);
  Case c{.placement = Placement::round_robin(8, world_size()), .tokens = per_rank({40, 3})};
  c.config.top_k = 4;
  c.config.combine = CombineType::bf16;
  const Input input(c, random_routing(c));
  std::vector<std::vector<float>> y;
  for (const auto& strategy : fitting_strategies()) {
    const auto part = make_prepare_finalize(strategy, group, c.config, context);
    for (int repeat = 0; repeat < 2; ++repeat) y.push_back(round_trip(*part, input, c, context));
  }
  for (const auto& other : y) EXPECT_EQ(differing(other, y[0]), 0);
}

}  // namespace
}  // namespace epmoe::test
