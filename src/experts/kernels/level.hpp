#pragma once
// The exported table of a level whose kernels all come from panel_gemm.hpp: include after EPMOE_KERNEL_NAME and what
// vectors.hpp wants are defined.
#include "experts/kernels/decoded_gemm.hpp"
#include "experts/kernels/functions.hpp"
#include "experts/kernels/panel_gemm.hpp"

namespace epmoe::kernels {

extern const KernelFunctions EPMOE_KERNEL_NAME;
constinit const KernelFunctions EPMOE_KERNEL_NAME = {
    .gemm_f32 = gemm_float<F32Words>,
    .gemm_bf16 = gemm_float<Bf16Words>,
    .gemm_int8 = gemm_integer<Int8Words>,
    .gemm_decoded = gemm_decoded,
    .activate = activate,
    .round_bf16 = round_bf16,
    .max_magnitude = max_magnitude,
    .round_int8 = round_int8,
    .exp = exp_array,
    .erf = erf_array,
    .f32_rounding = F32Words::kRounding,
    .bf16_rounding = Bf16Words::kRounding,
    .unsigned_int8_rows = Int8Words::kUnsignedRows,
};

}  // namespace epmoe::kernels
