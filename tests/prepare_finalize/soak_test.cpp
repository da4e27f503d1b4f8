/// Random calls with a lagging rank, failures and drops among them. EPMOE_SOAK_STEPS sets the number of steps (500),
/// EPMOE_SOAK_SEED the seed (otherwise one from the clock, printed).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "epmoe/comm/step_plan.hpp"
#include "epmoe/core/random.hpp"
#include "prepare_finalize/round_trip.hpp"

namespace epmoe::test {
namespace {

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::uint64_t agreed_seed(const ExecutionContext& context) {
  auto seed = setting("EPMOE_SOAK_SEED",
                      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
  std::vector<std::byte> bytes(sizeof seed);
  std::memcpy(bytes.data(), &seed, sizeof seed);
  bytes = comm::Communicator::world().broadcast(bytes, 0, context, "seed");
  std::memcpy(&seed, bytes.data(), sizeof seed);
  if (world_rank() == 0) fmt::print("soak seed {}\n", seed);
  return seed;
}

enum class Mishap { none, bad_id, stage_fails, dropped_dispatch, dropped_receipt };

TEST(Soak, RandomCallsWithALaggingRank) {
  const TestContext context;
  const auto seed = agreed_seed(context);
  const auto steps = setting("EPMOE_SOAK_STEPS", 500);
  comm::GroupConfig tight;
  tight.receive_budget_bytes = 3000;
  tight.send_window = 1;
  const std::vector<std::shared_ptr<comm::ExpertGroup>> groups{world_group(context), world_group(context, tight)};
  const std::vector<std::string> strategies = fitting_strategies();
  for (std::uint64_t step = 0; step < steps; ++step) {
    const auto draw = [&](std::uint64_t what, std::uint64_t below) { return random_bits(seed, step, what) % below; };
    Case c{.strategy = strategies[draw(0, strategies.size())]};
    c.seed = seed + step;
    c.config.experts = static_cast<std::int64_t>(1 + draw(1, 20));
    c.config.top_k = static_cast<std::int64_t>(1 + draw(2, 6));
    c.config.hidden = static_cast<std::int64_t>(1 + draw(3, 40));
    c.config.dispatch = static_cast<DispatchType>(draw(4, 4));
    c.config.reproducible = draw(5, 3) == 0;
    c.config.combine = !c.config.reproducible && draw(6, 2) == 0 ? CombineType::bf16 : CombineType::f32;
    c.placement = draw(7, 2) == 0 ? Placement::linear(c.config.experts, world_size())
                                  : Placement::round_robin(c.config.experts, world_size());
    for (int r = 0; r < world_size(); ++r)
      c.tokens.push_back(static_cast<std::int64_t>(
          draw(20 + static_cast<std::uint64_t>(r), 4) == 0 ? 0 : draw(40 + static_cast<std::uint64_t>(r), 30)));
    const auto mishap = draw(8, 4) == 0 ? static_cast<Mishap>(draw(9, 5)) : Mishap::none;
    const auto culprit = static_cast<int>(draw(10, static_cast<std::uint64_t>(world_size())));
    const bool mine = culprit == world_rank();
    if (draw(11, 100) == 0 && mine) std::this_thread::sleep_for(std::chrono::microseconds(draw(12, 2000)));

    const auto& group = groups[draw(13, groups.size())];
    const auto part = make_prepare_finalize(c.strategy, group, c.config, context);
    Input input(c, random_routing(c));
    const bool bad_id = mishap == Mishap::bad_id && c.tokens[static_cast<std::size_t>(culprit)] > 0;
    if (bad_id && mine) input.routing.ids()(0, 0) = static_cast<std::int32_t>(c.config.experts);
    auto wanted = ErrorCode::none;
    if (bad_id) wanted = ErrorCode::input;
    if (mishap == Mishap::stage_fails) wanted = ErrorCode::internal;
    const bool drops = mishap == Mishap::dropped_dispatch || mishap == Mishap::dropped_receipt;
    if (drops) wanted = mine ? ErrorCode::none : ErrorCode::abandoned;

    auto found = ErrorCode::none;
    try {
      auto pending = part->prepare_async(input.prepare(c), context);
      if (mishap == Mishap::dropped_dispatch && mine) {
        pending.reset();
      } else {
        auto prepared = pending->receive();
        if (mishap == Mishap::dropped_receipt && mine) {
          prepared.receipt = Receipt();
        } else if (mishap == Mishap::stage_fails && mine) {
          std::vector<float> y(static_cast<std::size_t>(input.x.rows * c.config.hidden));
          part->finalize(std::move(prepared.receipt), input.routing.view(), {{}, ErrorCode::internal},
                         matrix_view(y.data(), input.x.rows, c.config.hidden), context);
        } else {
          EXPECT_EQ(differing(finish_call(*part, std::move(prepared), input, c, context), oracle(input, c)), 0)
              << "seed " << seed << " step " << step;
        }
      }
    } catch (const Error& error) {
      found = error.code();
    }
    EXPECT_EQ(found, wanted) << "seed " << seed << " step " << step;
    // The dropped call is answered from inside the group's next wait.
    if (drops) (void)comm::agree_step(*group, {.step = step}, context);
  }
  for (const auto& group : groups) {
    EXPECT_EQ(group->in_flight(), 0);
    EXPECT_FALSE(group->broken());
  }
}

}  // namespace
}  // namespace epmoe::test
