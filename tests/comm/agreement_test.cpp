#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "epmoe/comm/communicator.hpp"
#include "support/world.hpp"

namespace epmoe::comm {
namespace {

struct Thrown {
  ErrorCode code = ErrorCode::none;
  int rank = -1;
  std::string phase, what;
};

template <class Call>
Thrown thrown(Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    return {e.code(), e.rank(), e.phase(), e.what()};
  }
  return {};
}

TEST(Agreement, NobodyFails) {
  test::TestContext context;
  const auto world = Communicator::world();
  EXPECT_EQ(thrown([&] { agree_or_throw(world, nullptr, context, "loading"); }).code, ErrorCode::none);
}

TEST(Agreement, AllRanksThrowTheOneThatFailed) {
  test::TestContext context;
  const auto world = Communicator::world();
  for (int failing = 0; failing < world.size(); ++failing) {
    std::exception_ptr mine;
    if (world.rank() == failing)
      mine = std::make_exception_ptr(CheckpointError("cannot read a.safetensors", -1, "loading"));
    const auto error = thrown([&] { agree_or_throw(world, mine, context, "loading"); });
    EXPECT_EQ(error.code, ErrorCode::checkpoint);
    EXPECT_EQ(error.rank, failing);
    EXPECT_EQ(error.phase, "loading");
    EXPECT_EQ(error.what, "rank " + std::to_string(failing) + ": cannot read a.safetensors");
  }
}

TEST(Agreement, TheLowestOfSeveralFailingRanksWins) {
  test::TestContext context;
  const auto world = Communicator::world();
  const int lowest = world.size() > 1 ? 1 : 0;
  std::exception_ptr mine;
  if (world.rank() >= lowest)
    mine = std::make_exception_ptr(InputError("rank " + std::to_string(world.rank()) + ": bad row"));
  const auto error = thrown([&] { agree_or_throw(world, mine, context, "checking"); });
  EXPECT_EQ(error.code, ErrorCode::input);
  EXPECT_EQ(error.what, "rank " + std::to_string(lowest) + ": bad row") << "the rank is named once";
}

TEST(Agreement, OtherExceptionsTravelAsInternalErrors) {
  test::TestContext context;
  const auto world = Communicator::world();
  auto error = thrown([&] { agree_or_throw(world, std::make_exception_ptr(std::bad_alloc()), context, "x"); });
  EXPECT_EQ(error.code, ErrorCode::internal);
  EXPECT_THAT(error.what, ::testing::HasSubstr("bad_alloc"));
  error = thrown([&] { agree_or_throw(world, std::make_exception_ptr(3), context, "x"); });
  EXPECT_EQ(error.what, "rank 0: unknown exception");
}

TEST(CheckSame, EqualSettingsPass) {
  test::TestContext context;
  const std::pair<std::string, std::string> fields[] = {{"hidden", "96"}, {"top_k", "8"}};
  check_same(Communicator::world(), fields, context, "making the layer");
  check_same(Communicator::world(), {}, context, "nothing");
}

TEST(CheckSame, NamesTheFieldTheValuesAndTheRanks) {
  test::TestContext context;
  const auto world = Communicator::world();
  for (int odd = 0; odd < world.size() && world.size() > 1; ++odd) {
    const std::pair<std::string, std::string> fields[] = {
        {"hidden", "96"}, {"top_k", world.rank() == odd ? "6" : "8"}, {"experts", std::to_string(world.rank())}};
    const auto error = thrown([&] { check_same(world, fields, context, "making the layer"); });
    std::string others;
    for (int r = 0; r < world.size(); ++r)
      if (r != odd) others += (others.empty() ? "" : ", ") + std::to_string(r);
    const std::string most = "8 on rank" + std::string(world.size() > 2 ? "s " : " ") + others;
    const std::string one = "6 on rank " + std::to_string(odd);
    EXPECT_EQ(error.what,
              "making the layer: top_k differs between ranks: " + (odd == 0 ? one + ", " + most : most + ", " + one));
    EXPECT_EQ(error.code, ErrorCode::config);
    EXPECT_EQ(error.rank, odd == 0 ? 1 : odd);
  }
}

TEST(Agreement, RanksThatDoDifferentThingsFindOut) {
  test::TestContext context;
  const auto world = Communicator::world();
  if (world.size() < 2) GTEST_SKIP();
  const std::pair<std::string, std::string> fields[] = {{"hidden", "96"}};
  const auto error = thrown([&] {
    if (world.rank() == 1)
      check_same(world, fields, context, "making the layer");
    else
      agree_or_throw(world, nullptr, context, "loading");
  });
  EXPECT_EQ(error.code, ErrorCode::comm);
  EXPECT_EQ(
      error.what,
      "rank 1: found in \"making the layer: are all settings equal?\", wanted in \"loading: did all succeed?\" as "
      "rank 0");
}

TEST(CheckSame, OtherListsOfSettingsDiffer) {
  test::TestContext context;
  const auto world = Communicator::world();
  if (world.size() < 2) GTEST_SKIP();
  std::vector<std::pair<std::string, std::string>> fields = {{"hidden", "96"}};
  if (world.rank() == 1) fields.emplace_back("extra", "1");
  const auto error = thrown([&] { check_same(world, fields, context, "making the layer"); });
  EXPECT_THAT(error.what, ::testing::HasSubstr("the list of settings differs between ranks: (none) on rank"));
  EXPECT_THAT(error.what, ::testing::HasSubstr("extra on rank 1"));
}

}  // namespace
}  // namespace epmoe::comm
