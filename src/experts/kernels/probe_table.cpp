#include "epmoe/core/cpu_features.hpp"
#include "experts/kernels/probe.hpp"

namespace epmoe::kernels {

extern const ProbeFunctions probe_generic;
#if defined(__x86_64__)
extern const ProbeFunctions probe_avx2, probe_avx_vnni, probe_avx512, probe_avx512_vnni, probe_avx512_bf16;
#elif defined(__aarch64__)
extern const ProbeFunctions probe_neon, probe_neon_dotprod, probe_neon_i8mm_bf16;
#endif

namespace {

// Best first. Whether a set may run is decided here, in code built for the baseline.
constexpr ProbeSet kSets[] = {
#if defined(__x86_64__)
    {"avx512_bf16", [](const CpuFeatures& cpu) { return cpu.avx512_bf16 && cpu.avx512_vnni; }, &probe_avx512_bf16},
    {"avx512_vnni", [](const CpuFeatures& cpu) { return cpu.avx512_vnni; }, &probe_avx512_vnni},
    {"avx512", [](const CpuFeatures& cpu) { return cpu.avx512; }, &probe_avx512},
    {"avx_vnni", [](const CpuFeatures& cpu) { return cpu.avx_vnni; }, &probe_avx_vnni},
    {"avx2", [](const CpuFeatures& cpu) { return cpu.avx2; }, &probe_avx2},
#elif defined(__aarch64__)
    {"neon_i8mm_bf16", [](const CpuFeatures& cpu) { return cpu.i8mm && cpu.bf16; }, &probe_neon_i8mm_bf16},
    {"neon_dotprod", [](const CpuFeatures& cpu) { return cpu.dotprod; }, &probe_neon_dotprod},
    {"neon", [](const CpuFeatures& cpu) { return cpu.neon; }, &probe_neon},
#endif
    {"generic", [](const CpuFeatures&) { return true; }, &probe_generic},
};

}  // namespace

const ProbeSet& best_probe_set() {
  for (const ProbeSet& set : kSets)
    if (set.supported(cpu_features())) return set;
  return kSets[sizeof kSets / sizeof kSets[0] - 1];
}

}  // namespace epmoe::kernels
