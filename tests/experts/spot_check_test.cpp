#include "epmoe/experts/spot_check.hpp"

#include <gtest/gtest.h>

#include <set>

#include "epmoe/experts/machine_probe.hpp"
#include "expert_case.hpp"
#include "support/world.hpp"

/// The check that benchmarks make before they time: right results pass, one wrong weight or value does not.
namespace epmoe::test {
namespace {

constexpr Shape kShape{192, 80};
constexpr std::int64_t kExperts = 4, kRows = 24;

struct Case {
  explicit Case(const QuantConfig& quant) : config(experts_config(kShape, quant.compute, Activation::silu, false, 4)) {
    config.quant = quant;
    dispatch = default_dispatch_type(quant.compute);
    context.executor = executor.get();
  }
  [[nodiscard]] SpotCheck check(const TestBatch& batch) const {
    return {config,
            batch.batch,
            [this](std::int32_t e, int) { return weights.experts[static_cast<std::size_t>(e)].weights(); },
            64,
            3,
            context};
  }
  /// What the native back end makes of `packed`.
  [[nodiscard]] std::vector<float> output(const TestBatch& batch, const RandomExperts& packed) const {
    const auto native = make_experts("native", config, context);
    return run(*native, batch.batch, packed.pack(native->packed_layout()), context).rows;
  }
  ExpertsConfig config;
  DispatchType dispatch = DispatchType::f32;
  RandomExperts weights{kExperts, kShape, DType::f32, false};
  std::vector<float> x = random_rows(kRows, kShape.hidden);
  std::unique_ptr<Executor> executor = make_openmp_executor(2);
  ExecutionContext context;
};

std::vector<QuantConfig> all_formats() {
  std::vector<QuantConfig> all;
  for (const ComputeType compute : kComputeTypes) all.push_back(QuantConfig::for_compute(compute));
  for (const QuantConfig& format : narrow_quant_configs()) all.push_back(format);
  return all;
}

std::string text(const QuantConfig& quant) {
  return std::string(quant.weights.narrow() ? name(quant.weights) : name(quant.compute));
}

TEST(SpotCheck, PassesWhatTheNativeBackEndComputes) {
  for (const QuantConfig& quant : all_formats()) {
    const Case c(quant);
    const TestBatch batch(const_matrix_view(c.x.data(), kRows, kShape.hidden), c.dispatch, kExperts,
                          two_choices(kRows, kExperts));
    const SpotCheck check = c.check(batch);
    const std::vector<float> output = c.output(batch, c.weights);
    const SpotCheckResult result =
        check.compare(const_matrix_view(output.data(), batch.batch.routing.entries(), kShape.hidden));
    EXPECT_EQ(result.blocks, 64 * kExperts) << text(quant);
    EXPECT_TRUE(result.differences.empty()) << text(quant) << ": " << describe(result.differences.front());
    std::set<std::int32_t> experts;
    for (const SpotBlock& block : check.blocks()) experts.insert(block.expert);
    EXPECT_EQ(static_cast<std::int64_t>(experts.size()), kExperts) << text(quant);
  }
}

TEST(SpotCheck, FindsOneWrongWeight) {
  for (const QuantConfig& quant : all_formats()) {
    const Case c(quant);
    const TestBatch batch(const_matrix_view(c.x.data(), kRows, kShape.hidden), c.dispatch, kExperts,
                          two_choices(kRows, kExperts));
    const SpotCheck check = c.check(batch);
    RandomExperts wrong(kExperts, kShape, DType::f32, false);
    float& weight = *static_cast<float*>(const_cast<void*>(wrong.experts[2].down.view().data));  // row 0, column 0
    weight = 40.0F;
    const std::vector<float> output = c.output(batch, wrong);
    const SpotCheckResult result =
        check.compare(const_matrix_view(output.data(), batch.batch.routing.entries(), kShape.hidden));
    ASSERT_FALSE(result.differences.empty()) << text(quant);
    const std::string found = describe(result.differences.front());
    EXPECT_EQ(found.rfind("expert 2, row ", 0), 0U) << text(quant) << ": " << found;
    EXPECT_NE(found.find("found "), std::string::npos) << found;
    EXPECT_NE(found.find("wanted "), std::string::npos) << found;
  }
}

TEST(SpotCheck, FindsAValueThatIsNoNumber) {
  const Case c(QuantConfig::for_compute(ComputeType::bf16));
  const TestBatch batch(const_matrix_view(c.x.data(), kRows, kShape.hidden), c.dispatch, kExperts,
                        two_choices(kRows, kExperts));
  const SpotCheck check = c.check(batch);
  std::vector<float> output = c.output(batch, c.weights);
  const SpotBlock& block = check.blocks().front();
  output[static_cast<std::size_t>(block.entry * kShape.hidden + block.first_column + 5)] =
      std::numeric_limits<float>::quiet_NaN();
  const SpotCheckResult result =
      check.compare(const_matrix_view(output.data(), batch.batch.routing.entries(), kShape.hidden));
  ASSERT_FALSE(result.differences.empty());
  EXPECT_EQ(result.differences.front().row, block.row);
  EXPECT_EQ(result.differences.front().column, block.first_column + 5);
}

TEST(MachineProbe, RatesArePositiveForAnyNumberOfWorkers) {
  MachineProbe probe(8 << 20);
  for (const int workers : {1, 2, 3}) {
    const auto executor = make_openmp_executor(workers);
    EXPECT_GT(probe.read_bytes_per_s(*executor, 4 << 20), 0.0);
    EXPECT_GT(probe.read_bytes_per_s(*executor, 64 << 20), 0.0);  // round the memory several times
    for (const DotType type : {DotType::f32, DotType::bf16, DotType::int8})
      EXPECT_GT(probe.dots_per_s(type, *executor), 0.0);
  }
  EXPECT_FALSE(MachineProbe::isa().empty());
}

}  // namespace
}  // namespace epmoe::test
