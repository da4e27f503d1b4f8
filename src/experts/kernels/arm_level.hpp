#pragma once
// The exported table of an AArch64 level: include after EPMOE_KERNEL_NAME and what vectors.hpp and arm_vectors.hpp want
// are defined. The instructions that the file is compiled for decide which kernels there are.
#include "experts/kernels/arm_gemm.hpp"
#include "experts/kernels/common_functions.hpp"

namespace epmoe::kernels {

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && defined(__ARM_FEATURE_MATMUL_INT8)
using ArmBf16 = Bf16Matrix;
#define EPMOE_ARM_INT8 arm_gemm_integer<Int8Matrix>
#define EPMOE_ARM_INT8_WORD 8
#elif defined(EPMOE_SVE) || defined(__ARM_FEATURE_DOTPROD)
using ArmBf16 = Bf16Lanes;
#define EPMOE_ARM_INT8 arm_gemm_integer<Int8Lanes>
#define EPMOE_ARM_INT8_WORD 4
#else
using ArmBf16 = Bf16Lanes;
#define EPMOE_ARM_INT8 gemm_integer<Int8Words>
#define EPMOE_ARM_INT8_WORD 4
#endif

extern const KernelFunctions EPMOE_KERNEL_NAME;
constinit const KernelFunctions EPMOE_KERNEL_NAME = [] {
  KernelFunctions level = common_functions();
  level.gemm_f32 = arm_gemm_float<F32Lanes>;
  level.gemm_bf16 = arm_gemm_float<ArmBf16>;
  level.gemm_int8 = EPMOE_ARM_INT8;
  level.f32_rounding = F32Lanes::kRounding;
  level.bf16_rounding = ArmBf16::kRounding;
  level.bf16_word_bytes = ArmBf16::kWordBytes;
  level.int8_word_bytes = EPMOE_ARM_INT8_WORD;
  return level;
}();

}  // namespace epmoe::kernels
