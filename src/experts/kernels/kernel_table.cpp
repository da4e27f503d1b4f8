#include <string_view>

#include "epmoe/core/cpu_features.hpp"
#include "experts/kernels/kernel_set.hpp"

namespace epmoe::kernels {

extern const KernelFunctions kernels_generic;
#if defined(__x86_64__)
extern const KernelFunctions kernels_avx2;
extern const KernelFunctions kernels_avx_vnni;
extern const KernelFunctions kernels_avx512;
extern const KernelFunctions kernels_avx512_vnni;
extern const KernelFunctions kernels_avx512_bf16;
extern const KernelFunctions kernels_avx512_bf16_vbmi;
#elif defined(__aarch64__)
extern const KernelFunctions kernels_neon;
extern const KernelFunctions kernels_neon_dotprod;
extern const KernelFunctions kernels_neon_i8mm_bf16;
extern const KernelFunctions kernels_sve256_i8mm_bf16;
extern const KernelFunctions kernels_sve512;
#endif

namespace {

// Whether a set may run is decided here, in code built for the baseline.
constexpr KernelSet kSets[] = {
#if defined(__x86_64__)
    {"avx512_bf16_vbmi", [](const CpuFeatures& cpu) { return cpu.avx512_bf16 && cpu.avx512_vnni && cpu.avx512_vbmi; },
     &kernels_avx512_bf16_vbmi},
    {"avx512_bf16", [](const CpuFeatures& cpu) { return cpu.avx512_bf16 && cpu.avx512_vnni; }, &kernels_avx512_bf16},
    {"avx512_vnni", [](const CpuFeatures& cpu) { return cpu.avx512_vnni; }, &kernels_avx512_vnni},
    {"avx512", [](const CpuFeatures& cpu) { return cpu.avx512; }, &kernels_avx512},
    {"avx_vnni", [](const CpuFeatures& cpu) { return cpu.avx_vnni; }, &kernels_avx_vnni},
    {"avx2", [](const CpuFeatures& cpu) { return cpu.avx2; }, &kernels_avx2},
#elif defined(__aarch64__)
    // SVE of 128 bits has nothing over NEON here: the same registers and the same instructions.
    {"sve512", [](const CpuFeatures& cpu) { return cpu.sve_bytes == 64; }, &kernels_sve512},
    {"sve256_i8mm_bf16", [](const CpuFeatures& cpu) { return cpu.sve_bytes == 32 && cpu.sve_i8mm && cpu.sve_bf16; },
     &kernels_sve256_i8mm_bf16},
    {"neon_i8mm_bf16", [](const CpuFeatures& cpu) { return cpu.dotprod && cpu.i8mm && cpu.bf16; },
     &kernels_neon_i8mm_bf16},
    {"neon_dotprod", [](const CpuFeatures& cpu) { return cpu.dotprod; }, &kernels_neon_dotprod},
    {"neon", [](const CpuFeatures& cpu) { return cpu.neon; }, &kernels_neon},
#endif
    {"generic", [](const CpuFeatures&) { return true; }, &kernels_generic},
};

}  // namespace

KernelTable kernel_table() {
  return {kSets, static_cast<int64_t>(std::size(kSets))};
}

const KernelSet* find_kernel_set(const char* name) {
  const std::string_view wanted = name;
  for (const KernelSet& set : kSets)
    if ((wanted.empty() || wanted == set.name) && set.supported(cpu_features())) return &set;
  return nullptr;
}

}  // namespace epmoe::kernels
