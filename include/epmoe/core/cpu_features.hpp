#pragma once
#include <string>

/// What this CPU can do, read once from CPUID or the auxiliary vector. Local, thread-safe.
namespace epmoe {

struct CpuFeatures {
  // x86-64
  bool avx2 = false;    ///< with FMA and F16C
  bool avx512 = false;  ///< F, BW, DQ, VL
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool avx512_vbmi = false;
  bool avx_vnni = false;
  // AArch64
  bool neon = false;
  bool dotprod = false;
  bool i8mm = false;
  bool bf16 = false;
  bool sve = false;
  bool sve_i8mm = false;
  bool sve_bf16 = false;
  int sve_bytes = 0;  ///< length of an SVE register for this process; 0 without SVE
};

const CpuFeatures& cpu_features();

/// "x86-64: avx2 avx512 avx512_bf16" for reports.
std::string describe(const CpuFeatures& features);

}  // namespace epmoe
