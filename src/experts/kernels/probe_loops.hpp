#pragma once
// The loops of one ISA level, for the probe_*.cpp files, which define before including this what vectors.hpp wants and
//   EPMOE_PROBE_NAME   the exported table
// Each step uses the level's widest instruction for the format; levels without one take what their kernels take.
#include "experts/kernels/probe.hpp"
#include "experts/kernels/vectors.hpp"

namespace epmoe::kernels {
namespace {

constexpr int64_t kVectorBytes = EPMOE_VECTOR_BYTES;
constexpr int kSums = 12;  // independent sums in registers: enough to hide the latency of an addition

/// Operands that the compiler cannot know: 0.5 as f32 and as a pair of bf16.
const volatile uint32_t probe_word = 0x3f003f00U;

// One instruction (or short sequence) per sum, written out, because a compiler may drop, merge or move anything else:
// OP(sum) with the operands %12 and %13 and registers of class CLASS. Single variables: an array would go to memory.
#define EPMOE_PROBE_STEP(Name, OPERATIONS, OP, CLASS, ...)                                                            \
  struct Name {                                                                                                       \
    static constexpr int64_t kOperations = OPERATIONS;                                                                \
    static void run(int64_t rounds, const U32& x, const U32& y) {                                                     \
      const U32 a = x, b = y;                                                                                         \
      U32 s0{}, s1{}, s2{}, s3{}, s4{}, s5{}, s6{}, s7{}, s8{}, s9{}, s10{}, s11{};                                   \
      for (int64_t r = 0; r < rounds; ++r)                                                                            \
        __asm__ volatile(OP("%0") OP("%1") OP("%2") OP("%3") OP("%4") OP("%5") OP("%6") OP("%7") OP("%8") OP("%9")    \
                             OP("%10") OP("%11")                                                                      \
                         : "+" CLASS(s0), "+" CLASS(s1), "+" CLASS(s2), "+" CLASS(s3), "+" CLASS(s4), "+" CLASS(s5),  \
                           "+" CLASS(s6), "+" CLASS(s7), "+" CLASS(s8), "+" CLASS(s9), "+" CLASS(s10), "+" CLASS(s11) \
                         : CLASS(a), CLASS(b)                                                                         \
                         : __VA_ARGS__);                                                                              \
    }                                                                                                                 \
  };

#if EPMOE_VECTOR_BYTES >= 32
#define EPMOE_FMA(sum) "vfmadd231ps %12, %13, " sum "\n\t"
EPMOE_PROBE_STEP(F32Step, kVectorBytes / 4 * 2, EPMOE_FMA, "v")
#elif defined(__aarch64__)
#define EPMOE_FMA(sum) "fmla " sum ".4s, %12.4s, %13.4s\n\t"
EPMOE_PROBE_STEP(F32Step, 8, EPMOE_FMA, "w")
#else
struct F32Step {
  static constexpr int64_t kOperations = kVectorBytes / 4 * 2;
  static void run(int64_t rounds, const U32& a, const U32& b) {
    F32 s[kSums] = {};
    for (int64_t r = 0; r < rounds; ++r)
      for (F32& sum : s) sum = sum * (F32)a + (F32)b;  // depends on the sum, else the product is computed once
    F32 all{};
    for (const F32& sum : s) all += sum;
    __asm__ volatile("" : : "m"(all));  // it is wanted
  }
};
#endif

#if EPMOE_VECTOR_BYTES == 64 && defined(__AVX512BF16__)
#define EPMOE_BF16_DOT(sum) "vdpbf16ps %12, %13, " sum "\n\t"
EPMOE_PROBE_STEP(Bf16Step, 64, EPMOE_BF16_DOT, "v")
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define EPMOE_BF16_DOT(sum) "bfmmla " sum ".4s, %12.8h, %13.8h\n\t"
EPMOE_PROBE_STEP(Bf16Step, 32, EPMOE_BF16_DOT, "w")
#else
using Bf16Step = F32Step;  // widened
#endif

#if EPMOE_VECTOR_BYTES == 64 && defined(__AVX512VNNI__)
#define EPMOE_INT8_DOT(sum) "vpdpbusd %12, %13, " sum "\n\t"
EPMOE_PROBE_STEP(Int8Step, 128, EPMOE_INT8_DOT, "v")
#elif EPMOE_VECTOR_BYTES == 32 && defined(__AVXVNNI__)
#define EPMOE_INT8_DOT(sum) "%{vex%} vpdpbusd %12, %13, " sum "\n\t"
EPMOE_PROBE_STEP(Int8Step, 64, EPMOE_INT8_DOT, "x")
#elif EPMOE_VECTOR_BYTES == 64  // widened to pairs of 16 bits
#define EPMOE_INT8_DOT(sum) "vpmaddwd %12, %13, %%zmm31\n\tvpaddd %%zmm31, " sum ", " sum "\n\t"
EPMOE_PROBE_STEP(Int8Step, 64, EPMOE_INT8_DOT, "v", "xmm31")
#elif EPMOE_VECTOR_BYTES == 32
#define EPMOE_INT8_DOT(sum) "vpmaddwd %12, %13, %%ymm15\n\tvpaddd %%ymm15, " sum ", " sum "\n\t"
EPMOE_PROBE_STEP(Int8Step, 32, EPMOE_INT8_DOT, "x", "xmm15")
#elif defined(__ARM_FEATURE_MATMUL_INT8)
#define EPMOE_INT8_DOT(sum) "smmla " sum ".4s, %12.16b, %13.16b\n\t"
EPMOE_PROBE_STEP(Int8Step, 64, EPMOE_INT8_DOT, "w")
#elif defined(__ARM_FEATURE_DOTPROD)
#define EPMOE_INT8_DOT(sum) "sdot " sum ".4s, %12.16b, %13.16b\n\t"
EPMOE_PROBE_STEP(Int8Step, 32, EPMOE_INT8_DOT, "w")
#else
struct Int8Step {
  static constexpr int64_t kOperations = kVectorBytes / 4 * 4;
  static void run(int64_t rounds, const U32& a, const U32& b) {
    U32 s[kSums] = {};
    for (int64_t r = 0; r < rounds; ++r)
      for (U32& sum : s) sum += (U32)multiply_pairs((I16)(sum ^ a), (I16)b);
    U32 all{};
    for (const U32& sum : s) all ^= sum;
    __asm__ volatile("" : : "m"(all));
  }
};
#endif

template <class Step>
double probe_dots(int64_t rounds) {
  const uint32_t word = probe_word;
  Step::run(rounds, U32{} + word, U32{} + (word ^ 0x00800080U));
  return static_cast<double>(rounds * kSums * Step::kOperations);
}

uint64_t probe_read(const void* from, int64_t bytes) {
  const char* p = static_cast<const char*>(from);
  U32 sums[4] = {};
  for (int64_t i = 0; i < bytes; i += 4 * kVectorBytes)
    for (int s = 0; s < 4; ++s) sums[s] ^= load<U32>(p + i + s * kVectorBytes);
  const U32 all = (sums[0] ^ sums[1]) ^ (sums[2] ^ sums[3]);
  uint64_t result = 0;
  for (int lane = 0; lane < kLanes; ++lane) result ^= static_cast<uint64_t>(all[lane]) << (lane % 2 * 32);
  return result;
}

}  // namespace

extern const ProbeFunctions EPMOE_PROBE_NAME;
constinit const ProbeFunctions EPMOE_PROBE_NAME = {
    .read = probe_read,
    .f32 = probe_dots<F32Step>,
    .bf16 = probe_dots<Bf16Step>,
    .int8 = probe_dots<Int8Step>,
};

}  // namespace epmoe::kernels
