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
#elif defined(__aarch64__)
extern const KernelFunctions kernels_neon;
#endif

namespace {

// Whether a set may run is decided here, in code built for the baseline.
constexpr KernelSet kSets[] = {
#if defined(__x86_64__)
    {"avx512_bf16", [](const CpuFeatures& cpu) { return cpu.avx512_bf16 && cpu.avx512_vnni; }, &kernels_avx512_bf16},
    {"avx512_vnni", [](const CpuFeatures& cpu) { return cpu.avx512_vnni; }, &kernels_avx512_vnni},
    {"avx512", [](const CpuFeatures& cpu) { return cpu.avx512; }, &kernels_avx512},
    {"avx_vnni", [](const CpuFeatures& cpu) { return cpu.avx_vnni; }, &kernels_avx_vnni},
    {"avx2", [](const CpuFeatures& cpu) { return cpu.avx2; }, &kernels_avx2},
#elif defined(__aarch64__)
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
