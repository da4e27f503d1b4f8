#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "experts/covering_case.hpp"

/// Every format with every kernel set over a set of shapes, row counts, numbers of experts, activations, wire types and
/// checkpoint types in which each pair of values occurs.
namespace epmoe::test {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;

/// About the milliseconds of a case with all kernel sets: fixed, for weights, for products, for memory to be filled.
double cost_of(const QuantConfig& quant, const CoveringCase& c) {
  const std::int64_t bytes = layer_bytes(quant, c);
  if (bytes > kMostBytes) return std::numeric_limits<double>::infinity();
  const auto weights = static_cast<double>(3 * c.hidden * c.intermediate);
  return 1.0 + weights * (50e-6 + 1e-6 * static_cast<double>(c.rows)) + static_cast<double>(bytes) * 0.3e-6;
}

class Covering : public ::testing::TestWithParam<int> {
 protected:
  [[nodiscard]] static QuantConfig quant() { return all_formats()[static_cast<std::size_t>(GetParam())]; }
  [[nodiscard]] static std::vector<CoveringCase> cases() {
    const QuantConfig format = quant();
    return CoveringSet(static_cast<std::uint64_t>(100 + GetParam()),
                       [format](const CoveringCase& c) { return cost_of(format, c); })
        .cases();
  }
};

TEST_P(Covering, EachValueIsInThreeCasesAndEachPairOfSizesInOne) {
  std::map<std::int64_t, int> rows, hidden, intermediate, experts;
  std::map<Activation, int> activations_found;
  std::map<std::pair<std::int64_t, std::int64_t>, int> shapes, tall;
  for (const CoveringCase& c : cases()) {
    ++rows[c.rows];
    ++hidden[c.hidden];
    ++intermediate[c.intermediate];
    ++experts[c.experts];
    ++activations_found[c.activation];
    ++shapes[{c.hidden, c.intermediate}];
    ++tall[{c.rows, c.intermediate}];
    EXPECT_LE(layer_bytes(quant(), c), kMostBytes);
  }
  const auto expect_counts = [](const auto& counts, std::size_t values, int least) {
    EXPECT_EQ(counts.size(), values);
    for (const auto& [value, count] : counts) EXPECT_GE(count, least);
  };
  expect_counts(rows, 27, 3);
  expect_counts(hidden, 12, 3);
  expect_counts(intermediate, 12, 3);
  expect_counts(experts, 8, 3);
  expect_counts(activations_found, 10, 3);
  expect_counts(shapes, 144, 1);
  expect_counts(tall, 27 * 12, 1);
}

TEST_P(Covering, MatchesTheReferenceThatQuantisesAlike) {
  const std::vector<std::string> sets = isas();
  for (const CoveringCase& c : cases()) CoveringRun(quant(), c).check(sets);
}

INSTANTIATE_TEST_SUITE_P(Formats, Covering, ::testing::Range(0, static_cast<int>(all_formats().size())),
                         [](const auto& index) { return name(all_formats()[static_cast<std::size_t>(index.param)]); });

}  // namespace
}  // namespace epmoe::test
