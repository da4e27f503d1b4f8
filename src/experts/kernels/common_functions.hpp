#pragma once
// What the exported tables of all levels have in common; the GEMMs of the compute types differ.
#include "experts/kernels/decoded_gemm.hpp"
#include "experts/kernels/functions.hpp"

namespace epmoe::kernels {
namespace {

constexpr KernelFunctions common_functions() {
  KernelFunctions functions{};
  functions.gemm_decoded = gemm_decoded;
  functions.activate = activate;
  functions.round_bf16 = round_bf16;
  functions.max_magnitude = max_magnitude;
  functions.round_int8 = round_int8;
  functions.part_sums = part_sums;
  functions.exp = exp_array;
  functions.erf = erf_array;
  return functions;
}

}  // namespace
}  // namespace epmoe::kernels
