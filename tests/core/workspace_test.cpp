#include "epmoe/core/workspace.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "core/expect_error.hpp"
#include "epmoe/core/error.hpp"

namespace epmoe {
namespace {

using test::expect_error;

std::uintptr_t address(const std::byte* p) {
  return reinterpret_cast<std::uintptr_t>(p);
}

TEST(AlignedBuffer, IsAlignedAndMoves) {
  for (const std::int64_t bytes : {1LL, 63LL, 64LL, 4096LL, (1LL << 20) - 1}) {
    AlignedBuffer buffer(bytes);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(address(buffer.data()) % 64, 0U);
    std::memset(buffer.data(), 1, static_cast<std::size_t>(bytes));
  }
  AlignedBuffer large((1 << 20) + 1);
  EXPECT_EQ(address(large.data()) % 4096, 0U);
  EXPECT_EQ(address(AlignedBuffer(5 << 20).data()) % (2 << 20), 0U);
  const std::byte* data = large.data();
  AlignedBuffer moved = std::move(large);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(large.data(), nullptr);  // NOLINT: what is left behind is the point
  EXPECT_EQ(large.size(), 0);
  EXPECT_EQ(AlignedBuffer(0).data(), nullptr);
}

TEST(AlignedBuffer, NamesTheBytesItCannotGet) {
  expect_error<InternalError>([] { AlignedBuffer(-5); }, "-5 bytes");
#if !defined(__SANITIZE_ADDRESS__)  // its allocator ends the process instead
  expect_error<InternalError>([] { AlignedBuffer(1LL << 60); }, "1152921504606846976 bytes");
#endif
}

TEST(Workspace, GrowsUntilLocked) {
  SharedResizableBuffer buffer("workspace13");
  EXPECT_EQ(buffer.get(0), nullptr);
  std::byte* first = buffer.get(1000);
  EXPECT_GE(buffer.size(), 1000);
  EXPECT_EQ(buffer.get(10), first);  // never shrinks
  buffer.get(5000);
  buffer.lock();
  EXPECT_NE(buffer.get(5000), nullptr);
  const auto held = buffer.size();
  expect_error<InternalError>([&] { buffer.get(held + 1); }, "workspace13", std::to_string(held) + " bytes",
                              std::to_string(held + 1) + " bytes");
  EXPECT_EQ(buffer.size(), held);
  buffer.unlock();
  EXPECT_NE(buffer.get(held + 1), nullptr);
}

TEST(Workspace, ASetLocksAllOfIts) {
  WorkspaceSet set;
  set.workspace2.get(100);
  set.lock();
  EXPECT_EQ(set.size(), set.workspace2.size());
  for (auto* buffer : set.all()) EXPECT_THROW(buffer->get(1 << 16), InternalError) << buffer->name();
  set.unlock();
  for (auto* buffer : set.all()) EXPECT_NE(buffer->get(1 << 16), nullptr);
  EXPECT_EQ(set.size(), static_cast<std::int64_t>(set.all().size()) << 16);
}

}  // namespace
}  // namespace epmoe
