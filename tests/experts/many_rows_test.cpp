#include <gtest/gtest.h>

#include "experts/covering_case.hpp"

/// More rows than any size that fits a cache, a chunk or 16 bits.
namespace epmoe::test {
namespace {

TEST(ManyRows, FortyAndAHundredThousandRowsWholeAndInChunks) {
  CoveringCase c{.rows = 0,
                 .hidden = 33,
                 .intermediate = 17,
                 .experts = 8,
                 .activation = Activation::silu,
                 .wire = DispatchType::bf16,
                 .weights = DType::f32,
                 .biases = true};
  std::vector<QuantConfig> formats;
  for (const ComputeType compute : kComputeTypes) formats.push_back(QuantConfig::for_compute(compute));
  for (const char* name : {"int4_g32_zp", "mxfp4"})
    formats.push_back(QuantConfig::for_weights(*parse_weight_format(name)));
  for (const QuantConfig& quant : formats)
    for (const std::int64_t rows : {40000, 100000}) {
      c.rows = rows;
      CoveringRun run(quant, c, {5, 0, 7});
      for (const std::int64_t chunk : {std::int64_t{0}, std::int64_t{16384}})
        EXPECT_TRUE(run.errors("", chunk).fine()) << name(quant) << " " << rows << " rows, chunks of " << chunk;
    }
}

}  // namespace
}  // namespace epmoe::test
