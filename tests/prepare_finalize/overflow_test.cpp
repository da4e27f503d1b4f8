/// Receive memory stays within its budget, however many rows there are: what exceeds it flows in granted pieces.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "epmoe/core/random.hpp"
#include "prepare_finalize/round_trip.hpp"

namespace epmoe::test {
namespace {

comm::GroupConfig with_budget(std::int64_t bytes) {
  comm::GroupConfig config;
  config.receive_budget_bytes = bytes;
  config.send_window = 2;
  return config;
}

Case overflow_case(const std::string& strategy, bool reproducible) {
  Case c{.strategy = strategy, .placement = Placement::linear(8, world_size()), .tokens = per_rank({50, 20, 25})};
  c.config.reproducible = reproducible;
  return c;
}

TEST(Overflow, EverythingOverflows) {
  const TestContext context;
  for (const std::int64_t budget : {1LL, 4096LL, 20000LL}) {
    const auto group = world_group(context, with_budget(budget));
    for (const auto& strategy : fitting_strategies())
      for (const bool reproducible : {false, true}) {
        auto c = overflow_case(strategy, reproducible);
        c.config.dispatch = DispatchType::bf16;
        const auto part = make_prepare_finalize(strategy, group, c.config, context);
        const Input input(c, random_routing(c));
        int parts = 0;
        EXPECT_EQ(differing(round_trip(*part, input, c, context, Fault::none, &parts), oracle(input, c)), 0)
            << strategy << " budget " << budget;
        if (budget == 1 && world_size() > 1) {
          EXPECT_GT(parts, 5) << strategy;
        }
      }
    EXPECT_EQ(group->in_flight(), 0);
    EXPECT_EQ(group->slots().in_use(), 0);
  }
}

TEST(Overflow, UnevenTokensAndNone) {
  const TestContext context;
  const auto group = world_group(context, with_budget(1));
  for (const auto& strategy : fitting_strategies())
    for (const auto& tokens : {std::vector<std::int64_t>{0, 0, 0, 7}, {9, 0}, {0}, {1}, {30, 1, 1, 0}}) {
      auto c = overflow_case(strategy, false);
      c.tokens = per_rank(tokens);
      c.config.dispatch = DispatchType::int8;
      c.config.combine = CombineType::bf16;
      const auto part = make_prepare_finalize(strategy, group, c.config, context);
      const Input input(c, random_routing(c));
      EXPECT_EQ(differing(round_trip(*part, input, c, context), oracle(input, c)), 0) << strategy;
    }
}

/// Calls in flight together, parts and all, worked on in another order on every rank.
TEST(Overflow, PipelinedCallsInAnyOrder) {
  const TestContext context;
  const auto group = world_group(context, with_budget(1));
  constexpr int kCalls = 4;
  for (const auto& strategy : fitting_strategies())
    for (std::uint64_t round = 0; round < 4; ++round) {
      auto c = overflow_case(strategy, round % 2 == 0);
      c.tokens = per_rank({9, 4, 6});
      const auto part = make_prepare_finalize(strategy, group, c.config, context);
      std::vector<Input> inputs;
      std::vector<std::vector<float>> y;
      std::vector<std::unique_ptr<PendingDispatch>> dispatches;
      for (int i = 0; i < kCalls; ++i) {
        c.seed = round * 10 + static_cast<std::uint64_t>(i);
        inputs.emplace_back(c, random_routing(c));
        y.emplace_back(static_cast<std::size_t>(inputs.back().x.rows * c.config.hidden), -1.0F);
        dispatches.push_back(part->prepare_async(inputs.back().prepare(c), context));
      }
      const auto order = [&](std::uint64_t salt) {
        std::vector<std::size_t> calls{0, 1, 2, 3};
        std::sort(calls.begin(), calls.end(), [&](std::size_t a, std::size_t b) {
          const auto key = [&](std::size_t i) {
            return random_bits(round * 100 + salt, static_cast<std::uint64_t>(world_rank()), i);
          };
          return key(a) < key(b);
        });
        return calls;
      };
      std::vector<std::unique_ptr<PendingCombine>> combines(kCalls);
      for (const auto i : order(1)) {
        auto prepared = dispatches[i]->receive();
        auto receipt = std::move(prepared.receipt);
        auto experts = hand_experts(prepared.batch, c);
        while (prepared.more) {
          prepared = part->next_part(receipt, experts.output, context);
          experts = hand_experts(prepared.batch, c);
        }
        combines[i] = part->finalize_async(std::move(receipt), inputs[i].routing.view(), experts.output,
                                           matrix_view(y[i].data(), inputs[i].x.rows, c.config.hidden), context);
      }
      for (const auto i : order(2)) combines[i]->receive();
      for (std::size_t i = 0; i < kCalls; ++i) {
        combines[i]->receive();  // again: nothing happens
        EXPECT_EQ(differing(y[i], oracle(inputs[i], c)), 0) << strategy << " call " << i;
      }
      EXPECT_EQ(group->in_flight(), 0);
    }
}

TEST(Overflow, ReceiveMemoryFollowsTheBudget) {
  const TestContext context;
  if (world_size() == 1) return;
  auto c = overflow_case("alltoall", false);
  c.config.hidden = 256;  // 1 KiB a row and more
  c.tokens = per_rank({400});
  OwnedRouting all_to_last(400, 2);  // the hot rank's memory is what matters
  for (std::int64_t t = 0; t < 400; ++t) {
    all_to_last.ids()(t, 0) = 7;
    all_to_last.weights()(t, 0) = 1.0F;
  }
  const Input input(c, std::move(all_to_last));
  const auto held_with = [&](std::int64_t budget) {
    const auto group = world_group(context, with_budget(budget));
    const auto part = make_prepare_finalize("alltoall", group, c.config, context);
    EXPECT_EQ(differing(round_trip(*part, input, c, context), oracle(input, c)), 0);
    return group->slots().peak_bytes();
  };
  const auto large = held_with(256LL << 20), small = held_with(100000);
  if (world_rank() == world_size() - 1) {
    EXPECT_LT(small, large - 400 * 1024 / 2);
  }
}

}  // namespace
}  // namespace epmoe::test
