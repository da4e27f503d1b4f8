#pragma once
// The exported table of an AArch64 level: include after EPMOE_KERNEL_NAME and what vectors.hpp and arm_vectors.hpp want
// are defined. The instructions that the file is compiled for decide which kernels there are.
#include "experts/kernels/arm_gemm.hpp"
#include "experts/kernels/decoded_gemm.hpp"
#include "experts/kernels/functions.hpp"

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
constinit const KernelFunctions EPMOE_KERNEL_NAME = {
    .gemm_f32 = arm_gemm_float<F32Lanes>,
    .gemm_bf16 = arm_gemm_float<ArmBf16>,
    .gemm_int8 = EPMOE_ARM_INT8,
    .gemm_decoded = gemm_decoded,
    .activate = activate,
    .round_bf16 = round_bf16,
    .max_magnitude = max_magnitude,
    .round_int8 = round_int8,
    .exp = exp_array,
    .erf = erf_array,
    .f32_rounding = F32Lanes::kRounding,
    .bf16_rounding = ArmBf16::kRounding,
    .bf16_word_bytes = ArmBf16::kWordBytes,
    .int8_word_bytes = EPMOE_ARM_INT8_WORD,
};

}  // namespace epmoe::kernels
