#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "epmoe/core/error.hpp"
#include "experts/onednn/onednn_experts.hpp"

namespace epmoe {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

ExpertsConfig config_of(ComputeType compute) {
  ExpertsConfig config;
  config.shape.hidden = 64;
  config.shape.intermediate = 128;
  config.shape.experts = config.local_experts = 2;
  config.shape.top_k = 1;
  config.quant = QuantConfig::for_compute(compute);
  return config;
}

/// This process plays a CPU without AVX-512.
class OnALesserCpu : public ::testing::Test {
 public:
  static void SetUpTestSuite() { setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1); }  // before oneDNN's first use
};

TEST_F(OnALesserCpu, Bf16IsRefusedWithTheReason) {
  const auto verdict = supports_onednn(config_of(ComputeType::bf16));
  EXPECT_FALSE(verdict.ok);
  EXPECT_THAT(verdict.reason, HasSubstr("bf16"));
  EXPECT_THAT(verdict.reason, AnyOf(HasSubstr("no bf16 matrix product"), HasSubstr("ref")));
}

TEST_F(OnALesserCpu, Int8ThatWouldRunInReferenceCodeIsRefusedByName) {
  const auto verdict = supports_onednn(config_of(ComputeType::int8));
  EXPECT_FALSE(verdict.ok);
  EXPECT_THAT(verdict.reason, AnyOf(HasSubstr("ref_int8:any"), HasSubstr("no int8 matrix product")));
}

TEST_F(OnALesserCpu, F32RunsInABlockedKernelOrIsRefusedByName) {
  const auto verdict = supports_onednn(config_of(ComputeType::f32));
  if (verdict) {
    EXPECT_THAT(std::string(make_onednn(config_of(ComputeType::f32))->isa()), HasSubstr("brg"));
  } else {
    EXPECT_THAT(verdict.reason, AnyOf(HasSubstr("ref:any"), HasSubstr("no f32 matrix product")));
  }
}

TEST_F(OnALesserCpu, MakingWhatIsRefusedThrowsTheReason) {
  const auto config = config_of(ComputeType::bf16);
  try {
    (void)make_onednn(config);
    FAIL() << "made a bf16 back end without bf16 kernels";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr(supports_onednn(config).reason));
  }
}

TEST_F(OnALesserCpu, SettingsThatOneDnnCannotHonourAreRefused) {
  auto config = config_of(ComputeType::f32);
  config.reproducible = true;
  EXPECT_THAT(supports_onednn(config).reason, HasSubstr("order of summation"));

  config = config_of(ComputeType::f32);
  config.isa = "avx2";
  EXPECT_THAT(supports_onednn(config).reason, HasSubstr("'avx2' cannot be forced"));

  config = config_of(ComputeType::int8);
  config.shape.intermediate = 70000;
  EXPECT_THAT(supports_onednn(config).reason, HasSubstr("2^31"));

  config = config_of(ComputeType::int8);
  config.quant.w2.zero_point = true;
  EXPECT_THAT(supports_onednn(config).reason, HasSubstr("w2.zero_point"));
}

}  // namespace
}  // namespace epmoe
