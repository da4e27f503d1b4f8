#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "experts/covering_case.hpp"

/// Offsets that need more than 32 bits. Skipped, saying so, where the memory is not there (ctest -L large).
namespace epmoe::test {
namespace {

std::int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  for (std::int64_t kib; file >> key >> kib; file.ignore(100, '\n'))
    if (key == "MemAvailable:") return kib * 1024;
  return 0;
}

/// 384 experts of 2880 x 704: 2.3e9 weights, more than 2^31. The first and last slots and some between have rows; in
/// the others a stray read gives NaN.
TEST(LargeLayer, MoreWeightsThan31BitsCount) {
  const CoveringCase c{.rows = 9,
                       .hidden = 2880,
                       .intermediate = 704,
                       .experts = 384,
                       .activation = Activation::silu,
                       .wire = DispatchType::bf16,
                       .weights = DType::bf16,
                       .biases = true};
  static_assert(std::int64_t{3} * 2880 * 704 * 384 > std::int64_t{1} << 31);
  std::vector<QuantConfig> formats;
  for (const ComputeType compute : kComputeTypes) formats.push_back(QuantConfig::for_compute(compute));
  for (const char* name : {"f16", "fp8_block", "int4_g32_zp", "mxfp4"})
    formats.push_back(QuantConfig::for_weights(*parse_weight_format(name)));
  std::int64_t run = 0;
  for (const QuantConfig& quant : formats) {
    const std::int64_t bytes = layer_bytes(quant, c);
    if (bytes + (std::int64_t{1} << 30) > available_bytes()) {
      std::printf("left out: %s, which needs %lld MiB\n", name(quant).c_str(), static_cast<long long>(bytes >> 20));
      continue;
    }
    CoveringRun(quant, c, {383, 0, 171, 342, 86}).check({isas().front()});
    ++run;
  }
  if (run == 0) GTEST_SKIP() << "not enough memory for any format";
}

/// One chunk whose activations, and one whose rows and results, take more than 2^31 bytes.
TEST(LargeLayer, BuffersOfMoreThan31Bits) {
  const std::int64_t needed = std::int64_t{11} << 30;
  if (needed > available_bytes()) GTEST_SKIP() << "needs " << (needed >> 30) << " GiB";
  CoveringCase c{.rows = 560000,
                 .hidden = 512,
                 .intermediate = 1000,
                 .experts = 2,
                 .activation = Activation::relu2_no_mul,
                 .wire = DispatchType::bf16,
                 .weights = DType::f32,
                 .biases = false};
  CoveringRun(QuantConfig::for_compute(ComputeType::f32), c, {1}).check({isas().front()});
  c.hidden = 1000;
  c.intermediate = 64;
  CoveringRun(QuantConfig::for_compute(ComputeType::bf16), c, {1}).check({isas().front()});
}

}  // namespace
}  // namespace epmoe::test
