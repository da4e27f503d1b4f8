#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "experts/covering_case.hpp"

/// What covering_test.cpp does, for emulators and sanitizers: layers of at most 256 x 256, each value in some cases.
namespace epmoe::test {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{32} << 20;
constexpr int kTimes = EPMOE_COVERING_TIMES;  // fewer under an emulator

class CoveringSmall : public ::testing::TestWithParam<int> {};

TEST_P(CoveringSmall, MatchesTheReferenceThatQuantisesAlike) {
  const QuantConfig quant = all_formats()[static_cast<std::size_t>(GetParam())];
  const auto cases = covering_values(static_cast<std::uint64_t>(200 + GetParam()), kTimes, [&](const CoveringCase& c) {
    const bool small = c.hidden * c.intermediate <= 256 * 256 && layer_bytes(quant, c) <= kMostBytes;
    return small ? 1.0 : std::numeric_limits<double>::infinity();
  });
  const std::vector<std::string> sets = isas();
  std::multiset<std::int64_t> rows, hidden, intermediate, experts;
  for (const CoveringCase& c : cases) {
    CoveringRun(quant, c).check(sets);
    rows.insert(c.rows);
    hidden.insert(c.hidden);
    intermediate.insert(c.intermediate);
    experts.insert(c.experts);
  }
  const auto often = [](const std::multiset<std::int64_t>& values, std::int64_t value) {
    return values.count(value) >= kTimes;
  };
  for (const std::int64_t value : covering_rows()) EXPECT_TRUE(often(rows, value)) << value << " rows";
  for (const std::int64_t value : kCoveringSizes)
    EXPECT_TRUE(often(hidden, value) && often(intermediate, value)) << "size " << value;
  for (const std::int64_t value : kCoveringExperts) EXPECT_TRUE(often(experts, value)) << value << " experts";
}

INSTANTIATE_TEST_SUITE_P(Formats, CoveringSmall, ::testing::Range(0, static_cast<int>(all_formats().size())),
                         [](const auto& index) { return name(all_formats()[static_cast<std::size_t>(index.param)]); });

}  // namespace
}  // namespace epmoe::test
