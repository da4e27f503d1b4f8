#include <gtest/gtest.h>

#include <cstring>

#include "experts/expert_case.hpp"
#include "support/world.hpp"

/// One row gives the same bits whatever is computed beside it, in whatever pieces, by whatever threads; each kernel set
/// has bits of its own, and integer sums are the same for all.
namespace epmoe::test {
namespace {

constexpr std::int64_t kMostRows = 64;

/// Positions where two results differ in a bit; row r of `a` against row r of `b`.
std::int64_t differences(const std::vector<float>& a, const std::vector<float>& b) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) count += std::memcmp(&a[i], &b[i], 4) != 0;
  return count;
}

void check(Shape shape, ComputeType compute) {
  const auto values = random_rows(kMostRows, shape.hidden);
  const RandomExperts weights(1, shape, DType::bf16, true);
  const DispatchType dispatch = default_dispatch_type(compute);
  TestContext one(1), two(2);
  for (const std::string& isa : isas()) {
    std::vector<float> truth;  // all 64 rows in one call
    const auto config = experts_config(shape, compute, Activation::silu, true, 1, isa);
    const auto experts = make_experts("native", config, one);
    const ExpertSlots slots = weights.pack(experts->packed_layout());
    for (const std::int64_t rows : {64, 17, 3, 2, 1}) {
      const TestBatch batch(const_matrix_view(values.data(), rows, shape.hidden), dispatch, 1,
                            std::vector<std::vector<std::int32_t>>(static_cast<std::size_t>(rows), {0}));
      const auto where = [&](const char* what) {
        return isa + " " + std::string(name(compute)) + " H " + std::to_string(shape.hidden) + " I " +
               std::to_string(shape.intermediate) + " M " + std::to_string(rows) + " " + what;
      };
      const RunResult whole = run(*experts, batch.batch, slots, one);
      if (truth.empty()) truth = whole.rows;
      EXPECT_EQ(differences(whole.rows, truth), 0) << where("one thread");
      EXPECT_TRUE(whole.guards_intact) << where("guards");
      if (rows == 17 || rows == 2) {
        EXPECT_EQ(differences(run(*experts, batch.batch, slots, two).rows, truth), 0) << where("two threads");
      }
      if (rows == 17) {
        EXPECT_EQ(differences(run(*experts, batch.batch, slots, one, 1).rows, truth), 0) << where("row by row");
      }
    }
  }
}

TEST(Bitwise, K2048) {
  for (const ComputeType compute : kComputeTypes) {
    check({2048, 64}, compute);
    check({64, 2048}, compute);
  }
}

TEST(Bitwise, K7168) {
  for (const ComputeType compute : kComputeTypes) {
    check({7168, 32}, compute);
    check({32, 7168}, compute);
  }
}

TEST(Bitwise, ChunksAndThreads) {
  constexpr std::int64_t kExperts = 5, kRows = 150;
  const Shape shape{96, 80};
  const auto values = random_rows(kRows, shape.hidden);
  const RandomExperts weights(kExperts, shape, DType::f32, true);
  TestContext one(1), two(2);
  for (const ComputeType compute : kComputeTypes) {
    const TestBatch batch(const_matrix_view(values.data(), kRows, shape.hidden), default_dispatch_type(compute),
                          kExperts, two_choices(kRows, kExperts));
    for (const std::string& isa : isas()) {
      std::vector<float> truth;
      for (TestContext* context : {&one, &two})
        for (const std::int64_t chunk : {0, 1, 7, 128}) {
          const auto experts =
              make_experts("native", experts_config(shape, compute, Activation::gelu, true, kExperts, isa), *context);
          const RunResult result = run(*experts, batch.batch, weights.pack(experts->packed_layout()), *context, chunk);
          if (truth.empty()) truth = result.rows;
          EXPECT_EQ(differences(result.rows, truth), 0) << isa << " " << name(compute) << " chunk " << chunk;
          EXPECT_TRUE(result.guards_intact) << isa << " " << name(compute) << " chunk " << chunk;
        }
    }
  }
}

}  // namespace
}  // namespace epmoe::test
