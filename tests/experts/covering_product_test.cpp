#include <gtest/gtest.h>

#include <cstdio>

#include "experts/covering_case.hpp"

/// All combinations of row count, sizes and number of experts for every format and kernel set, the other factors drawn
/// at random for each: more than an hour per format, so run by hand (this program with a filter, or ctest -L
/// exhaustive).
namespace epmoe::test {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{2} << 30;

class Product : public ::testing::TestWithParam<int> {};

TEST_P(Product, MatchesTheReferenceThatQuantisesAlike) {
  const QuantConfig quant = all_formats()[static_cast<std::size_t>(GetParam())];
  const std::vector<std::string> sets = isas();
  const CoveringFactors factors;
  std::int64_t run = 0, too_large = 0;
  CoveringFactors::Indices i{};
  for (i[3] = 0; i[3] < factors.values(3); ++i[3])
    for (i[1] = 0; i[1] < factors.values(1); ++i[1])
      for (i[2] = 0; i[2] < factors.values(2); ++i[2])
        for (i[0] = 0; i[0] < factors.values(0); ++i[0]) {
          for (std::size_t f = 4; f < CoveringFactors::kFactors; ++f)
            i[f] = random_bits(23, f, static_cast<std::uint64_t>(run)) % factors.values(f);
          const CoveringCase c = factors.at(i);
          if (layer_bytes(quant, c) > kMostBytes) {
            ++too_large;
            continue;
          }
          CoveringRun(quant, c).check(sets);
          ++run;
        }
  std::printf("%s: %lld cases, %lld more would need over 2 GiB\n", name(quant).c_str(), static_cast<long long>(run),
              static_cast<long long>(too_large));
  EXPECT_GT(run, too_large);
}

INSTANTIATE_TEST_SUITE_P(Formats, Product, ::testing::Range(0, static_cast<int>(all_formats().size())),
                         [](const auto& index) { return name(all_formats()[static_cast<std::size_t>(index.param)]); });

}  // namespace
}  // namespace epmoe::test
