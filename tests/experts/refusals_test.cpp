#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "epmoe/core/error.hpp"
#include "experts/expert_case.hpp"
#include "support/world.hpp"

/// The table of back ends, what it picks, and what it answers to what it cannot do.
namespace epmoe::test {
namespace {

using ::testing::HasSubstr;

const ExpertsConfig kGood = experts_config({64, 64}, ComputeType::f32, Activation::silu, false, 4);

const BackendInfo& native() {
  static const std::vector<BackendInfo> all = backends();
  for (const BackendInfo& backend : all)
    if (backend.name == "native") return backend;
  throw std::logic_error("no native back end");
}

std::string config_error(std::string_view name, const ExpertsConfig& config) {
  TestContext context;
  try {
    make_experts(name, config, context);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(Backends, AutoPicksTheFirstAutomaticOneThatSupportsTheConfig) {
  TestContext context;
  for (const ComputeType compute : kComputeTypes) {
    const auto config = experts_config({64, 64}, compute, Activation::silu, false, 4);
    std::string wanted;
    for (const BackendInfo& backend : backends())
      if (wanted.empty() && backend.automatic && backend.supports(config)) wanted = backend.name;
    EXPECT_EQ(make_experts("auto", config, context)->name(), wanted);
  }
  EXPECT_FALSE(backends().back().automatic) << "the slow one is last and never picked silently";
  EXPECT_EQ(backends().back().name, "reference");
  EXPECT_EQ(make_experts("reference", kGood, context)->name(), "reference");
  EXPECT_EQ(make_experts("native", kGood, context)->isa(), isas().front());
}

TEST(Backends, UnknownNameIsAnsweredWithTheKnown) {
  EXPECT_THAT(config_error("cuda", kGood),
              ::testing::AllOf(HasSubstr("'cuda'"), HasSubstr("native"), HasSubstr("reference")));
}

class CollectingLogger : public Logger {
 public:
  void log(LogLevel level, std::string_view message) override {
    if (level == LogLevel::debug) text += std::string(message) + "\n";
  }
  std::string text;
};

TEST(Backends, RefusalsCarryTheirReason) {
  ExpertsConfig config = kGood;
  config.isa = "itanium";
  EXPECT_THAT(config_error("native", config), ::testing::AllOf(HasSubstr("'itanium'"), HasSubstr("generic")));
  TestContext context;
  CollectingLogger logger;
  context.context().logger = &logger;
  try {
    make_experts("auto", config, context);
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("native"));
  }
  EXPECT_THAT(logger.text, HasSubstr("'itanium'"));

  config = experts_config({66312, 64}, ComputeType::int8, Activation::silu, false, 1);
  EXPECT_THAT(config_error("native", config), HasSubstr("66311"));
  config.shape.hidden = 66311;
  EXPECT_TRUE(native().supports(config).ok);
  config = experts_config({64, 66312}, ComputeType::int8, Activation::silu, false, 1);
  EXPECT_FALSE(native().supports(config).ok);
  config.quant = QuantConfig::for_compute(ComputeType::bf16);
  EXPECT_TRUE(native().supports(config).ok);
  config.shape.hidden = 0;
  EXPECT_THAT(native().supports(config).reason, HasSubstr("hidden 0"));

  using Granularity = ScaleConfig::Granularity;
  config = experts_config({64, 64}, ComputeType::int8, Activation::silu, false, 1);
  config.quant.w1.granularity = Granularity::per_block;
  EXPECT_THAT(config_error("native", config), HasSubstr("w1.granularity"));
  config.quant = QuantConfig::for_compute(ComputeType::int8);
  config.quant.a2.zero_point = true;
  EXPECT_THAT(config_error("reference", config), HasSubstr("a2.zero_point"));
  config.quant = QuantConfig::for_compute(ComputeType::int8);
  config.quant.a1.granularity = Granularity::per_tensor;  // dynamic per tensor would depend on the batch
  EXPECT_THAT(config_error("native", config), HasSubstr("a1.is_static"));
  config.quant = QuantConfig::for_compute(ComputeType::f32);
  config.quant.a1.granularity = Granularity::per_token;
  EXPECT_THAT(config_error("native", config), HasSubstr("a1.granularity"));
  config.quant = QuantConfig::for_compute(ComputeType::int8);
  config.quant.g1_alpha = 2.0F;
  EXPECT_THAT(config_error("native", config), HasSubstr("g1_alpha"));
}

TEST(Backends, ApplyRefusesWhatDoesNotFit) {
  const Shape shape{64, 64};
  const RandomExperts weights(4, shape, DType::f32, false);
  const auto values = random_rows(2, 64);
  const TestBatch batch(const_matrix_view(values.data(), 2, 64), DispatchType::f32, 4, two_choices(2, 4));
  const ExpertIndex index = index_by_expert(batch.batch, 0, 2);
  TestContext context;
  for (const char* name : {"native", "reference"}) {
    const auto experts = make_experts(name, kGood, context);
    const ExpertSlots slots = weights.pack(experts->packed_layout());
    const auto shapes = experts->workspace_shapes(2, 4);
    GuardedBuffer a(shapes.workspace13_bytes), b(shapes.workspace2_bytes);
    std::vector<float> out(4 * 64);
    const auto apply = [&](const ExpertBatch& in, const ExpertSlots& with, MatrixView to) {
      experts->apply(in, index, with, a.data(), b.data(), to, context);
    };
    EXPECT_NO_THROW(apply(batch.batch, slots, matrix_view(out.data(), 4, 64)));
    EXPECT_THROW(apply(batch.batch, slots, matrix_view(out.data(), 3, 64)), InputError);
    EXPECT_THROW(apply(batch.batch, slots, matrix_view(out.data(), 4, 63)), InputError);
    ExpertBatch other = batch.batch;
    other.hidden = 63;
    EXPECT_THROW(apply(other, slots, matrix_view(out.data(), 4, 64)), InputError);
    other = batch.batch;
    other.segments.pop_back();
    EXPECT_THROW(apply(other, slots, matrix_view(out.data(), 4, 64)), InputError);
    PackedLayout layout = experts->packed_layout();
    layout.compute = ComputeType::bf16;
    EXPECT_THROW(apply(batch.batch, ExpertSlots(layout, 4), matrix_view(out.data(), 4, 64)), InputError);
    EXPECT_THROW(apply(batch.batch, ExpertSlots(experts->packed_layout(), 3), matrix_view(out.data(), 4, 64)),
                 InputError);
  }
}

TEST(Backends, ProblemSizeAndTraits) {
  TestContext context;
  const auto experts = make_experts("native", kGood, context);
  const auto values = random_rows(5, 64);
  const TestBatch batch(const_matrix_view(values.data(), 5, 64), DispatchType::f32, 4, two_choices(5, 4));
  const ProblemSize size = experts->problem_size(batch.batch, index_by_expert(batch.batch, 1, 3));
  EXPECT_EQ(size.local_experts, 4);
  EXPECT_EQ(size.rows, 3);
  EXPECT_EQ(size.entries, 6);
  EXPECT_EQ(size.hidden, 64);
  EXPECT_EQ(size.intermediate, 64);
  EXPECT_EQ(size.top_k, 2);
  EXPECT_EQ(experts->traits().leaves_to_finalize, WeightAndReduceKind::contiguous);
  EXPECT_EQ(experts->traits().local_experts, 4);
}

TEST(ComputeTypes, AutoFollowsTheCheckpointAndSaysWhy) {
  std::string reason;
  EXPECT_EQ(resolve_compute_type(DType::bf16, &reason), ComputeType::bf16);
  EXPECT_THAT(reason, HasSubstr("bf16"));
  EXPECT_EQ(resolve_compute_type(DType::f16, &reason), ComputeType::f32);
  EXPECT_THAT(reason, HasSubstr("widened"));
  EXPECT_EQ(resolve_compute_type(DType::f32, &reason), ComputeType::f32);
  EXPECT_EQ(resolve_compute_type(DType::f32, nullptr), ComputeType::f32);
}

}  // namespace
}  // namespace epmoe::test
