#include "epmoe/core/cpu_features.hpp"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

namespace epmoe {
namespace {

constexpr bool bit(std::uint64_t word, unsigned index) {
  return ((word >> index) & 1U) != 0;
}

#if defined(__x86_64__)
CpuFeatures detect() {
  CpuFeatures f;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return f;
  const bool osxsave = bit(c, 27), fma = bit(c, 12), avx = bit(c, 28), f16c = bit(c, 29);
  if (!osxsave || !avx) return f;
  unsigned xcr0_low = 0, xcr0_high = 0;
  __asm__ volatile("xgetbv" : "=a"(xcr0_low), "=d"(xcr0_high) : "c"(0));
  const bool ymm_saved = (xcr0_low & 0x06U) == 0x06U;
  const bool zmm_saved = (xcr0_low & 0xe6U) == 0xe6U;
  if (!ymm_saved || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return f;
  f.avx2 = bit(b, 5) && fma && f16c;
  f.avx512 = f.avx2 && zmm_saved && bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31);
  f.avx512_vbmi = f.avx512 && bit(c, 1);
  f.avx512_vnni = f.avx512 && bit(c, 11);
  const unsigned subleaves = a;
  if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) {
    f.avx_vnni = f.avx2 && bit(a, 4);
    f.avx512_bf16 = f.avx512 && bit(a, 5);
  }
  return f;
}
#elif defined(__aarch64__) && defined(__linux__)
CpuFeatures detect() {
  // Bit numbers of the kernel's ABI; old headers lack the names.
  CpuFeatures f;
  const std::uint64_t hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
  f.neon = bit(hwcap, 1);
  f.dotprod = bit(hwcap, 20);
  f.sve = bit(hwcap, 22);
  f.i8mm = bit(hwcap2, 13);
  f.bf16 = bit(hwcap2, 14);
  if (f.sve) {
    constexpr int kGetVectorLength = 51;  // PR_SVE_GET_VL
    const int length = prctl(kGetVectorLength);
    f.sve_bytes = length < 0 ? 0 : length & 0xffff;
    f.sve_i8mm = bit(hwcap2, 9);
    f.sve_bf16 = bit(hwcap2, 12);
  }
  return f;
}
#else
CpuFeatures detect() {
  return {};
}
#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::string describe(const CpuFeatures& features) {
#if defined(__x86_64__)
  std::string text = "x86-64:";
#elif defined(__aarch64__)
  std::string text = "aarch64:";
#else
  std::string text = "other:";
#endif
  const struct {
    bool present;
    const char* name;
  } all[] = {{features.avx2, "avx2"},
             {features.avx512, "avx512"},
             {features.avx512_vnni, "avx512_vnni"},
             {features.avx512_bf16, "avx512_bf16"},
             {features.avx512_vbmi, "avx512_vbmi"},
             {features.avx_vnni, "avx_vnni"},
             {features.neon, "neon"},
             {features.dotprod, "dotprod"},
             {features.i8mm, "i8mm"},
             {features.bf16, "bf16"},
             {features.sve, "sve"}};
  bool any = false;
  for (const auto& feature : all)
    if (feature.present) {
      text.append(" ").append(feature.name);
      any = true;
    }
  if (features.sve_bytes > 0) text += " (" + std::to_string(8 * features.sve_bytes) + " bits)";
  if (!any) text += " baseline";
  return text;
}

}  // namespace epmoe
