#include "epmoe/comm/slot_pool.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>

namespace epmoe::comm {
namespace {

TEST(SlotPool, ReusesTheSmallestThatFits) {
  SlotPool pool;
  const std::byte* small = nullptr;
  const std::byte* large = nullptr;
  {
    auto a = pool.take(100);
    auto b = pool.take(10000);
    EXPECT_GE(a.size(), 100);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % 64, 0U);
    small = a.data();
    large = b.data();
    EXPECT_EQ(pool.in_use(), a.size() + b.size());
    EXPECT_EQ(pool.bytes(), pool.in_use());
  }
  EXPECT_EQ(pool.in_use(), 0);
  const std::int64_t held = pool.bytes();
  auto first = pool.take(64);
  auto second = pool.take(64);  // only the large one is free
  EXPECT_EQ(first.data(), small);
  EXPECT_EQ(second.data(), large);
  EXPECT_EQ(pool.bytes(), held);
  EXPECT_EQ(pool.peak_bytes(), held);
}

TEST(SlotPool, GrowingCallsDoNotPileBuffersUp) {
  SlotPool pool;
  for (std::int64_t bytes = 1; bytes <= 1 << 16; bytes *= 2) (void)pool.take(bytes);
  EXPECT_EQ(pool.bytes(), 1 << 16);
  EXPECT_EQ(pool.peak_bytes(), 1 << 16);
}

TEST(SlotPool, NoBytesIsABufferToo) {
  SlotPool pool;
  const auto slot = pool.take(0);
  EXPECT_NE(slot.data(), nullptr);
}

TEST(SlotPool, MovedSlotsAreReturnedOnce) {
  SlotPool pool;
  auto a = pool.take(64);
  SlotPool::Slot b = std::move(a);
  EXPECT_EQ(pool.in_use(), 64);
  b = pool.take(128);  // gives the first back
  EXPECT_EQ(pool.in_use(), 128);
  b = SlotPool::Slot();
  EXPECT_EQ(pool.in_use(), 0);
  EXPECT_EQ(pool.bytes(), 64 + 128);
}

TEST(SlotPool, LeakedSlotsAreCountedOutAndNeverReused) {
  SlotPool pool;
  auto slot = pool.take(64);
  std::byte* const memory = slot.data();
  slot.leak();
  EXPECT_EQ(pool.in_use(), 0);
  EXPECT_EQ(pool.bytes(), 0);
  std::memset(memory, 1, 64);  // still ours
  EXPECT_NE(pool.take(64).data(), memory);
  std::free(memory);  // so that the leak check stays silent
}

TEST(SlotPool, ASlotMayOutliveItsPool) {
  std::optional<SlotPool> pool(std::in_place);
  auto slot = pool->take(64);
  pool.reset();
  std::memset(slot.data(), 1, 64);
}

}  // namespace
}  // namespace epmoe::comm
