#include <gtest/gtest.h>

#include <cstring>

#include "experts/expert_case.hpp"
#include "support/world.hpp"

/// Every format with every kernel set: a row's bits do not depend on the threads, the chunks or the rows beside it.
namespace epmoe::test {
namespace {

constexpr Shape kShape{176, 96};
constexpr std::int64_t kExperts = 3, kRows = 98;

ExpertsConfig config_for(const QuantConfig& quant, const std::string& isa) {
  ExpertsConfig config = experts_config(kShape, quant.compute, Activation::silu, true, kExperts, isa);
  config.quant = quant;
  config.quant.w1_bias = config.quant.w2_bias = true;
  return config;
}

class SameBits : public ::testing::Test {
 protected:
  /// Runs `check(experts, slots, batch, truth)` for each format and kernel set; `truth` is from one thread, all at
  /// once.
  template <class Check>
  void for_all(Check&& check) {
    const auto x = const_matrix_view(values_.data(), kRows, kShape.hidden);
    for (const QuantConfig& quant : all_formats()) {
      const DispatchType wire = default_dispatch_type(quant.compute);
      const TestBatch batch(x, wire, kExperts, two_choices(kRows, kExperts));
      for (const std::string& isa : isas()) {
        SCOPED_TRACE(isa + " " + name(quant));
        const auto experts = make_experts("native", config_for(quant, isa), one_);
        const ExpertSlots slots = weights_.pack(experts->packed_layout());
        check(*experts, slots, batch, run(*experts, batch.batch, slots, one_).rows);
      }
    }
  }
  const std::vector<float> values_ = random_rows(kRows, kShape.hidden);
  const RandomExperts weights_{kExperts, kShape, DType::f32, true};
  TestContext one_{1}, two_{2}, three_{3}, eight_{8};
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

TEST_F(SameBits, AnyThreadsAndChunks) {
  for_all([&](const Experts& experts, const ExpertSlots& slots, const TestBatch& batch, const auto& truth) {
    for (const std::int64_t chunk : {1, 7, 64})
      EXPECT_TRUE(same(run(experts, batch.batch, slots, one_, chunk).rows, truth)) << "chunks of " << chunk;
    EXPECT_TRUE(same(run(experts, batch.batch, slots, two_).rows, truth)) << "2 threads";
    EXPECT_TRUE(same(run(experts, batch.batch, slots, three_, 50).rows, truth)) << "3 threads, chunks of 50";
    EXPECT_TRUE(same(run(experts, batch.batch, slots, eight_).rows, truth)) << "8 threads";
    EXPECT_TRUE(same(run(experts, batch.batch, slots, eight_, 17).rows, truth)) << "8 threads, chunks of 17";
  });
}

TEST_F(SameBits, AnyNumberOfRows) {
  for_all([&](const Experts& experts, const ExpertSlots& slots, const TestBatch& batch, const auto& truth) {
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 17, 33, 65}) {
      const TestBatch first(const_matrix_view(values_.data(), rows, kShape.hidden), batch.batch.type, kExperts,
                            two_choices(rows, kExperts));
      const auto found = run(experts, first.batch, slots, one_).rows;
      EXPECT_EQ(std::memcmp(found.data(), truth.data(), found.size() * 4), 0) << rows << " rows";
    }
  });
}

}  // namespace
}  // namespace epmoe::test
