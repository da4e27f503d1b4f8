#pragma once
// The exported table of a level whose kernels all come from panel_gemm.hpp: include after EPMOE_KERNEL_NAME and what
// vectors.hpp wants are defined.
#include "experts/kernels/common_functions.hpp"
#include "experts/kernels/panel_gemm.hpp"

namespace epmoe::kernels {

extern const KernelFunctions EPMOE_KERNEL_NAME;
constinit const KernelFunctions EPMOE_KERNEL_NAME = [] {
  KernelFunctions level = common_functions();
  level.gemm_f32 = gemm_float<F32Words>;
  level.gemm_bf16 = gemm_float<Bf16Words>;
  level.gemm_int8 = gemm_integer<Int8Words>;
  level.f32_rounding = F32Words::kRounding;
  level.bf16_rounding = Bf16Words::kRounding;
  level.unsigned_int8_rows = Int8Words::kUnsignedRows;
  return level;
}();

}  // namespace epmoe::kernels
