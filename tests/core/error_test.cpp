#include "epmoe/core/error.hpp"

#include <gtest/gtest.h>

namespace epmoe {
namespace {

template <class E>
void expect_thrown_as(ErrorCode code) {
  try {
    throw_error(code, "what", 3, "dispatch");
  } catch (const E& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_STREQ(error.what(), "what");
    EXPECT_EQ(error.rank(), 3);
    EXPECT_EQ(error.phase(), "dispatch");
    return;
  } catch (const std::exception& error) {
    ADD_FAILURE() << name(code) << " was thrown as another class: " << error.what();
  }
}

TEST(Error, EveryCodeHasItsClass) {
  expect_thrown_as<ConfigError>(ErrorCode::config);
  expect_thrown_as<InputError>(ErrorCode::input);
  expect_thrown_as<CheckpointError>(ErrorCode::checkpoint);
  expect_thrown_as<CommError>(ErrorCode::comm);
  expect_thrown_as<PeerLost>(ErrorCode::peer_lost);
  expect_thrown_as<TimeoutError>(ErrorCode::timeout);
  expect_thrown_as<AbandonedError>(ErrorCode::abandoned);
  expect_thrown_as<InternalError>(ErrorCode::internal);
  EXPECT_THROW(throw_error(static_cast<ErrorCode>(99), "from a newer peer", -1, ""), InternalError);
  EXPECT_EQ(name(ErrorCode::peer_lost), "peer_lost");
  EXPECT_EQ(name(static_cast<ErrorCode>(99)), "unknown");
}

}  // namespace
}  // namespace epmoe
