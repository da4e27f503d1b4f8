#include "experts/onednn/packed_matmul.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "epmoe/core/aligned_memory.hpp"
#include "epmoe/core/random.hpp"
#include "epmoe/experts/expert_slots.hpp"

namespace epmoe::onednn {
namespace {

std::int64_t words_of(ComputeType compute) {
  return PackedLayout{compute}.v();
}

/// Values that f32, bf16, u8 (a) and s8 (w) all hold exactly, so that every type must give the exact product.
int a_value(ComputeType compute, std::int64_t r, std::int64_t k) {
  const auto bits =
      static_cast<int>(random_bits(1, static_cast<std::uint64_t>(r), static_cast<std::uint64_t>(k)) % 256);
  return compute == ComputeType::int8 ? bits : bits % 17 - 8;
}
int w_value(ComputeType compute, std::int64_t k, std::int64_t n) {
  const auto bits =
      static_cast<int>(random_bits(2, static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(n)) % 255);
  return compute == ComputeType::int8 ? bits - 127 : bits % 17 - 8;
}
void put(ComputeType compute, int value, std::int64_t at, AlignedBuffer& buffer) {
  switch (compute) {
    case ComputeType::f32: buffer.as<float>()[at] = static_cast<float>(value); break;
    case ComputeType::bf16: buffer.as<bf16>()[at] = to_bf16(static_cast<float>(value)); break;
    case ComputeType::int8: buffer.data()[at] = static_cast<std::byte>(value); break;
  }
}
double result(ComputeType compute, std::int64_t at, const AlignedBuffer& buffer) {
  if (compute == ComputeType::int8) return buffer.as<std::int32_t>()[at];
  return buffer.as<float>()[at];
}

class PackedMatmulOf : public ::testing::TestWithParam<ComputeType> {};

/// The layout [N/64][K/v][64][v], written out here once more on purpose.
TEST_P(PackedMatmulOf, GivesTheExactProductForEveryBucketSize) {
  const auto compute = GetParam();
  const auto v = words_of(compute);
  const std::int64_t k = 32 * v, n = 192;
  if (const auto verdict = probe(compute, 1, k, n, nullptr); !verdict) GTEST_SKIP() << verdict.reason;
  const auto bytes = 4 / v;
  AlignedBuffer w(k * n * bytes);
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      put(compute, w_value(compute, i, j), (j / 64 * (k / v) + i / v) * 64 * v + j % 64 * v + i % v, w);
  const PackedMatmul matmul(compute, k, n);
  for (const std::int64_t rows : {1, 2, 3, 8, 20, 64, 256}) {
    AlignedBuffer a(rows * k * bytes), c(rows * n * 4);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < k; ++i) put(compute, a_value(compute, r, i), r * k + i, a);
    for (const int threads : {1, 2}) {
      std::memset(c.data(), 0x7f, static_cast<std::size_t>(c.size()));
      const ThreadLimit limit(threads);
      matmul.run(rows, threads, a.data(), w.data(), c.data());
      std::int64_t wrong = 0;
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t j = 0; j < n; ++j) {
          std::int64_t sum = 0;
          for (std::int64_t i = 0; i < k; ++i) sum += a_value(compute, r, i) * w_value(compute, i, j);
          if (result(compute, r * n + j, c) != static_cast<double>(sum)) ++wrong;
        }
      EXPECT_EQ(wrong, 0) << rows << " rows, " << threads << " threads";
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Types, PackedMatmulOf,
                         ::testing::Values(ComputeType::f32, ComputeType::bf16, ComputeType::int8),
                         [](const auto& type) { return std::string(name(type.param)); });

TEST(PackedMatmulCache, MakesAPrimitiveOncePerRowsAndThreads) {
  constexpr std::int64_t kK = 64, kN = 64, kRows = 4;
  if (const auto verdict = probe(ComputeType::f32, 1, kK, kN, nullptr); !verdict) GTEST_SKIP() << verdict.reason;
  const PackedMatmul matmul(ComputeType::f32, kK, kN);
  AlignedBuffer a(kRows * kK * 4), w(kK * kN * 4), c(kRows * kN * 4);
  std::memset(a.data(), 0, static_cast<std::size_t>(a.size()));
  std::memset(w.data(), 0, static_cast<std::size_t>(w.size()));
  const auto run = [&](std::int64_t rows, int threads, AlignedBuffer& out) {
    const ThreadLimit limit(threads);
    matmul.run(rows, threads, a.data(), w.data(), out.data());
  };
  run(4, 1, c);
  run(4, 1, c);
  run(3, 1, c);
  EXPECT_EQ(matmul.counts().made, 2);
  EXPECT_EQ(matmul.counts().found, 1);
  run(4, 2, c);
  EXPECT_EQ(matmul.counts().made, 3);

  constexpr int kThreads = 4, kTimes = 50;  // all at once, first use included
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      AlignedBuffer own(kRows * kN * 4);
      for (int i = 0; i < kTimes; ++i) run(2, 1, own);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(matmul.counts().made, 4);
  EXPECT_EQ(matmul.counts().found, 1 + kThreads * kTimes - 1);
}

}  // namespace
}  // namespace epmoe::onednn
