/// Errors and dropped calls: every rank learns of them at the same point in the same words, and the next call works.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "prepare_finalize/round_trip.hpp"

namespace epmoe::test {
namespace {

struct Caught {
  ErrorCode code = ErrorCode::none;
  int rank = -1;
  std::string phase, what;
};

Caught caught_by(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return {error.code(), error.rank(), error.phase(), error.what()};
  }
  return {};
}

class Failures : public ::testing::TestWithParam<std::tuple<std::string, std::int64_t>> {
 protected:
  Failures() {
    comm::GroupConfig config;
    config.receive_budget_bytes = std::get<1>(GetParam());
    group_ = world_group(context_, config);
    case_.strategy = std::get<0>(GetParam());
    case_.placement = Placement::linear(8, world_size());
    case_.tokens = per_rank({6, 11, 4});
    part_ = make_prepare_finalize(case_.strategy, group_, case_.config, context_);
  }

  /// A call without fault gives the right result, and nothing of earlier calls is left.
  void expect_next_call_works() {
    const Input input(case_, random_routing(case_));
    EXPECT_EQ(differing(round_trip(*part_, input, case_, context_), oracle(input, case_)), 0);
    EXPECT_EQ(group_->in_flight(), 0);
    over_ranks(0, context_);
    for (int i = 0; i < 1000 && group_->engine().parked() > 0; ++i) group_->engine().poll();
    EXPECT_EQ(group_->engine().parked(), 0);
    EXPECT_EQ(group_->slots().in_use(), 0);
  }

  /// All ranks caught the same error.
  void expect_same_everywhere(const Caught& mine, ErrorCode code, int rank, const std::string& phase,
                              const std::string& part_of_text) {
    EXPECT_EQ(mine.code, code) << mine.what;
    EXPECT_EQ(mine.rank, rank) << mine.what;
    EXPECT_EQ(mine.phase, phase) << mine.what;
    EXPECT_NE(mine.what.find(part_of_text), std::string::npos) << mine.what;
    const auto world = comm::Communicator::world();
    for (const auto& bytes : world.all_gather(std::as_bytes(std::span(mine.what)), context_, "texts"))
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), mine.what);
  }

  const TestContext context_;
  std::shared_ptr<comm::ExpertGroup> group_;
  Case case_;
  std::unique_ptr<PrepareFinalize> part_;
};

TEST_P(Failures, BadIdOnAnyRank) {
  for (int failing = 0; failing < world_size(); ++failing) {
    Input input(case_, random_routing(case_));
    if (world_rank() == failing) input.routing.ids()(3, 1) = 77;
    const auto caught = caught_by([&] { (void)round_trip(*part_, input, case_, context_); });
    expect_same_everywhere(caught, ErrorCode::input, failing, "dispatch",
                           fmt::format("rank {}: expert id 77 in row 3 is outside [0, 8)", failing));
    expect_next_call_works();
  }
}

TEST_P(Failures, TheLowestRankIsNamed) {
  Input input(case_, random_routing(case_));
  input.routing.ids()(world_rank(), 0) = -2 - world_rank();
  const auto caught = caught_by([&] { (void)round_trip(*part_, input, case_, context_); });
  expect_same_everywhere(caught, ErrorCode::input, 0, "dispatch", "rank 0: expert id -2 in row 0");
  expect_next_call_works();
}

TEST_P(Failures, BadShapesOnTheLastRank) {
  const int failing = world_size() - 1;
  for (int fault = 0; fault < 7; ++fault) {
    const Input input(case_, random_routing(case_));
    OwnedRouting wide(input.x.rows, 3);
    auto prepare = input.prepare(case_);
    std::vector<std::int32_t> integers(static_cast<std::size_t>(input.x.rows * case_.config.hidden));
    if (world_rank() == failing) {
      if (fault == 0) prepare.x.cols = 15;
      if (fault == 1) prepare.x = const_matrix_view(integers.data(), input.x.rows, case_.config.hidden);
      if (fault == 2) prepare.routing.ids.rows -= 1;
      if (fault == 3) prepare.routing = wide.view();
      if (fault == 4) prepare.x.rows -= 1;
      if (fault == 5) prepare.x.data = nullptr;
      if (fault == 6) prepare.failure = ErrorCode::input;
    }
    const auto caught = caught_by([&] { (void)part_->prepare(prepare, context_); });
    const std::vector<std::string> texts{"hidden of x: found 15, wanted 16",
                                         "dtype of x: found i32, wanted f32, f16 or bf16",
                                         "rows of the routing: found ",
                                         "top_k of the routing: found 3, wanted 2",
                                         "rows of x: found ",
                                         "data of x: found null",
                                         "arguments of the call: found some that it refused"};
    expect_same_everywhere(caught, ErrorCode::input, failing, "dispatch",
                           fmt::format("rank {}: {}", failing, texts[static_cast<std::size_t>(fault)]));
    expect_next_call_works();
  }
}

TEST_P(Failures, TooManyTokens) {
  auto config = case_.config;
  config.max_num_tokens_per_rank = 5;
  const auto bounded = make_prepare_finalize(case_.strategy, group_, config, context_);
  EXPECT_EQ(bounded->max_num_tokens_per_rank(), 5);
  const Input input(case_, random_routing(case_));
  const auto caught = caught_by([&] { (void)bounded->prepare(input.prepare(case_), context_); });
  expect_same_everywhere(caught, ErrorCode::input, 0, "dispatch",
                         "rank 0: tokens: found 6, wanted at most max_num_tokens_per_rank = 5 (dispatch)");
  expect_next_call_works();
}

TEST_P(Failures, AStageFailsOnAnyRankInAnyPart) {
  for (int failing = 0; failing < world_size(); ++failing)
    for (int at_part = 0; at_part < 3; ++at_part) {
      const Input input(case_, random_routing(case_));
      std::vector<float> y(static_cast<std::size_t>(input.x.rows * case_.config.hidden), -7.0F);
      int parts = 0;
      bool failed = false;
      const auto caught = caught_by([&] {
        auto part = part_->prepare(input.prepare(case_), context_);
        auto receipt = std::move(part.receipt);
        for (;; ++parts) {
          auto experts = hand_experts(part.batch, case_);
          if (world_rank() == failing && (parts == at_part || (!part.more && parts < at_part))) {
            experts.output = {{}, ErrorCode::internal};
            failed = true;
          }
          if (!part.more) {
            part_->finalize(std::move(receipt), input.routing.view(), experts.output,
                            matrix_view(y.data(), input.x.rows, case_.config.hidden), context_);
            return;
          }
          part = part_->next_part(receipt, experts.output, context_);
          if (failed) {
            EXPECT_FALSE(part.more);
            EXPECT_EQ(part.batch.rows(), 0);
          }
        }
      });
      expect_same_everywhere(caught, ErrorCode::internal, failing, "combine",
                             fmt::format("rank {}: a stage failed there", failing));
      expect_next_call_works();
    }
}

TEST_P(Failures, FinalizeWithAFailureWhilePartsAreLeft) {
  const int failing = world_size() / 2;
  const Input input(case_, random_routing(case_));
  const auto caught = caught_by([&] {
    auto part = part_->prepare(input.prepare(case_), context_);
    if (world_rank() != failing) {
      (void)finish_call(*part_, std::move(part), input, case_, context_);
      return;
    }
    std::vector<float> y(static_cast<std::size_t>(input.x.rows * case_.config.hidden));
    part_->finalize(std::move(part.receipt), input.routing.view(), {{}, ErrorCode::input},
                    matrix_view(y.data(), input.x.rows, case_.config.hidden), context_);
  });
  expect_same_everywhere(caught, ErrorCode::input, failing, "combine",
                         fmt::format("rank {}: a stage failed there", failing));
  expect_next_call_works();
}

TEST_P(Failures, WrongOutputShapes) {
  const int failing = world_size() - 1;
  for (int fault = 0; fault < 3; ++fault) {
    const Input input(case_, random_routing(case_));
    std::vector<float> y(static_cast<std::size_t>(input.x.rows * case_.config.hidden));
    const auto caught = caught_by([&] {
      auto part = part_->prepare(input.prepare(case_), context_);
      auto receipt = std::move(part.receipt);
      auto experts = hand_experts(part.batch, case_);
      while (part.more) {
        part = part_->next_part(receipt, experts.output, context_);
        experts = hand_experts(part.batch, case_);
      }
      auto view = matrix_view(y.data(), input.x.rows, case_.config.hidden);
      auto routing = input.routing.view();
      if (world_rank() == failing) {
        if (fault == 0) view.cols -= 1;
        if (fault == 1) experts.output.rows.rows += 1;
        if (fault == 2) routing.ids.rows -= 1;
      }
      part_->finalize(std::move(receipt), routing, experts.output, view, context_);
    });
    expect_same_everywhere(caught, ErrorCode::input, failing, "combine", fmt::format("rank {}: ", failing));
    expect_next_call_works();
  }
}

/// Dropped on one rank: as a pending dispatch, as a receipt, as a receipt after its first part.
TEST_P(Failures, DroppedCallsAreAbandonedEverywhere) {
  for (int dropping = 0; dropping < world_size(); ++dropping)
    for (int stage = 0; stage < 3; ++stage) {
      const Input input(case_, random_routing(case_));
      const auto caught = caught_by([&] {
        auto pending = part_->prepare_async(input.prepare(case_), context_);
        if (world_rank() != dropping) {
          (void)finish_call(*part_, pending->receive(), input, case_, context_);
          return;
        }
        if (stage == 0) return;
        auto part = pending->receive();
        if (stage == 2 && part.more)
          part = part_->next_part(part.receipt, hand_experts(part.batch, case_).output, context_);
      });
      if (world_rank() != dropping) {
        EXPECT_EQ(caught.code, ErrorCode::abandoned) << caught.what;
        EXPECT_EQ(caught.rank, dropping);
        EXPECT_EQ(caught.what,
                  fmt::format("rank {}: dropped its pending call, wanted it received (combine)", dropping));
      }
      expect_next_call_works();
    }
}

TEST_P(Failures, DroppedEverywhereNobodyWaits) {
  const Input input(case_, random_routing(case_));
  for (int repeat = 0; repeat < 3; ++repeat) {
    auto first = part_->prepare_async(input.prepare(case_), context_);
    auto second = part_->prepare_async(input.prepare(case_), context_);
    if (world_rank() % 2 == 0) second.reset();
  }
  expect_next_call_works();
}

TEST_P(Failures, DroppedBesideABadInput) {
  Input input(case_, random_routing(case_));
  if (world_rank() == world_size() - 1) input.routing.ids()(0, 0) = 8;
  auto pending = part_->prepare_async(input.prepare(case_), context_);
  if (world_rank() == 0) {
    pending.reset();
  } else {
    EXPECT_EQ(caught_by([&] { (void)pending->receive(); }).code, ErrorCode::input);
  }
  expect_next_call_works();
}

TEST_P(Failures, DroppedCombineIsHarmless) {
  const Input input(case_, random_routing(case_));
  std::vector<float> y(static_cast<std::size_t>(input.x.rows * case_.config.hidden), -7.0F);
  auto part = part_->prepare(input.prepare(case_), context_);
  auto receipt = std::move(part.receipt);
  auto experts = hand_experts(part.batch, case_);
  while (part.more) {
    part = part_->next_part(receipt, experts.output, context_);
    experts = hand_experts(part.batch, case_);
  }
  auto pending = part_->finalize_async(std::move(receipt), input.routing.view(), experts.output,
                                       matrix_view(y.data(), input.x.rows, case_.config.hidden), context_);
  if (world_rank() == 0) {
    pending.reset();
  } else {
    pending->receive();
    EXPECT_EQ(differing(y, oracle(input, case_)), 0);
  }
  expect_next_call_works();
}

/// Dropped just before the group ends: its destructor still answers the peers.
TEST_P(Failures, DroppedBeforeTheGroupEnds) {
  const Input input(case_, random_routing(case_));
  const auto caught = caught_by([&] {
    auto pending = part_->prepare_async(input.prepare(case_), context_);
    if (world_rank() != 0) (void)finish_call(*part_, pending->receive(), input, case_, context_);
  });
  EXPECT_EQ(caught.code, world_rank() == 0 ? ErrorCode::none : ErrorCode::abandoned) << caught.what;
}

TEST_P(Failures, ReceiptsOfOthersAreRefused) {
  const auto other = make_prepare_finalize(case_.strategy, group_, case_.config, context_);
  const Input input(case_, random_routing(case_));
  std::vector<float> y(static_cast<std::size_t>(input.x.rows * case_.config.hidden));
  const auto view = matrix_view(y.data(), input.x.rows, case_.config.hidden);
  {
    auto part = part_->prepare(input.prepare(case_), context_);
    const auto experts = hand_experts(part.batch, case_);
    EXPECT_EQ(caught_by([&] { (void)other->next_part(part.receipt, experts.output, context_); }).what,
              "next_part: found a receipt of another prepare/finalize object");
    EXPECT_TRUE(part.receipt.valid());
    const auto refused = caught_by(
        [&] { other->finalize(std::move(part.receipt), input.routing.view(), experts.output, view, context_); });
    EXPECT_EQ(refused.code, ErrorCode::input);
    EXPECT_EQ(refused.what, "finalize: found a receipt of another prepare/finalize object");
  }
  {
    auto part = part_->prepare(input.prepare(case_), context_);
    const auto experts = hand_experts(part.batch, case_);
    if (part.more) {
      EXPECT_EQ(caught_by([&] {
                  part_->finalize(std::move(part.receipt), input.routing.view(), experts.output, view, context_);
                }).what,
                "finalize: found a receipt with parts left, wanted next_part");
    } else {
      EXPECT_EQ(caught_by([&] { (void)part_->next_part(part.receipt, experts.output, context_); }).what,
                "next_part: found a receipt without further parts");
    }
  }
  EXPECT_EQ(caught_by([&] { part_->finalize(Receipt(), input.routing.view(), {}, view, context_); }).what,
            "finalize: found a receipt that was used before");
  expect_next_call_works();
}

INSTANTIATE_TEST_SUITE_P(Strategies, Failures,
                         ::testing::Combine(::testing::Values(std::string("alltoall"), std::string("allgather")),
                                            ::testing::Values(256LL << 20, 1LL)));

TEST(InFlight, OneMoreIsRefusedAlikeAndAnyOrderEnds) {
  const TestContext context;
  comm::GroupConfig config;
  config.max_in_flight = 2;
  const auto group = world_group(context, config);
  const Case c{.placement = Placement::linear(8, world_size()), .tokens = per_rank({5, 2})};
  const auto part = make_prepare_finalize("alltoall", group, c.config, context);
  const Input input(c, random_routing(c));
  auto first = part->prepare_async(input.prepare(c), context);
  auto second = part->prepare_async(input.prepare(c), context);
  const auto refused = caught_by([&] { (void)part->prepare_async(input.prepare(c), context); });
  EXPECT_EQ(refused.code, ErrorCode::input);
  EXPECT_EQ(refused.what, "calls in flight: found 2 unfinished, wanted fewer than max_in_flight = 2");
  const auto wanted = oracle(input, c);
  EXPECT_EQ(differing(finish_call(*part, second->receive(), input, c, context), wanted), 0);
  auto third = part->prepare_async(input.prepare(c), context);
  EXPECT_EQ(differing(finish_call(*part, third->receive(), input, c, context), wanted), 0);
  EXPECT_EQ(differing(finish_call(*part, first->receive(), input, c, context), wanted), 0);
  EXPECT_EQ(caught_by([&] { (void)first->receive(); }).what, "receive: this dispatch was received before");
}

TEST(Factory, RefusalsNameWhatIsWanted) {
  const TestContext context;
  const auto group = world_group(context);
  const PrepareFinalizeConfig good{.hidden = 8, .top_k = 2, .experts = 4};
  EXPECT_EQ(caught_by([&] { (void)make_prepare_finalize("ring", group, good, context); }).what,
            "strategy: found \"ring\", wanted one of auto, local, alltoall, allgather");
  EXPECT_EQ(make_prepare_finalize("auto", group, good, context)->name(), world_size() == 1 ? "local" : "alltoall");
  if (world_size() > 1) {
    EXPECT_EQ(caught_by([&] { (void)make_prepare_finalize("local", group, good, context); }).what,
              fmt::format("local: the group has {} ranks, wanted 1", world_size()));
    auto differs = good;
    if (world_rank() == 1) differs.hidden = 9;
    const auto caught = caught_by([&] { (void)make_prepare_finalize("alltoall", group, differs, context); });
    EXPECT_EQ(caught.code, ErrorCode::config);
    EXPECT_NE(caught.what.find("hidden"), std::string::npos) << caught.what;
  }
  auto bad = good;
  bad.hidden = 0;
  EXPECT_EQ(caught_by([&] { (void)make_prepare_finalize("alltoall", group, bad, context); }).code, ErrorCode::config);
  const auto part =
      make_prepare_finalize("alltoall", group, {.hidden = 8, .top_k = 1, .experts = 4, .reproducible = true}, context);
  ExpertsTraits traits;
  traits.leaves_to_finalize = WeightAndReduceKind::no_op;
  EXPECT_EQ(caught_by([&] { part->post_init_setup(traits); }).code, ErrorCode::config);
  traits.leaves_to_finalize = WeightAndReduceKind::contiguous;
  part->post_init_setup(traits);
}

}  // namespace
}  // namespace epmoe::test
