#include "golden/golden.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "epmoe/route/router.hpp"
#include "support/world.hpp"

namespace epmoe::test {
namespace {

class GoldenRouting : public ::testing::TestWithParam<GoldenCase> {
 protected:
  GoldenRouting() : golden_(load_golden(GetParam())), reader_(*golden_.catalog) {}

  [[nodiscard]] OwnedRouting route(const std::vector<float>& logits) {
    const MoeConfig& config = golden_.config();
    OwnedRouting out(golden_.tokens, config.top_k);
    make_router(config, checkpoint::read_correction_bias(reader_, golden_.layer))
        ->route({logits.data(), golden_.tokens, config.experts, config.experts}, out.ids(), out.weights(), context_);
    return out;
  }
  [[nodiscard]] std::vector<float> own_logits() {
    const MoeConfig& config = golden_.config();
    std::vector<float> logits(golden_.router_logits.size());
    router_logits(golden_.x(), checkpoint::read_router(reader_, golden_.layer),
                  {logits.data(), golden_.tokens, config.experts, config.experts}, context_,
                  config.routing.logits_in_f32);
    return logits;
  }

  Golden golden_;
  checkpoint::TensorReader reader_;
  TestContext context_;
};

/// Hugging Face's ids, and its weights within `tolerance`, relative.
void expect_routing(const Golden& golden, const Routing& routing, double tolerance) {
  for (std::int64_t t = 0; t < golden.tokens; ++t)
    for (std::int64_t j = 0; j < routing.top_k(); ++j) {
      const auto i = static_cast<std::size_t>(t * routing.top_k() + j);
      EXPECT_EQ(routing.ids(t, j), golden.topk_ids[i]) << "token " << t << " k " << j;
      EXPECT_NEAR(routing.weights(t, j), golden.topk_weights[i], tolerance * std::abs(golden.topk_weights[i]))
          << "token " << t << " k " << j;
    }
}

TEST_P(GoldenRouting, OfHuggingFacesLogitsIsHuggingFaces) {
  expect_routing(golden_, route(golden_.router_logits).view(), golden_.about.weight_tolerance);
}

TEST_P(GoldenRouting, OwnLogitsAreClose) {
  EXPECT_LE(relative_l2(own_logits(), golden_.router_logits), golden_.about.logit_tolerance);
}

TEST_P(GoldenRouting, OfOwnLogitsChoosesTheSameExperts) {  // the data has no near ties
  // A 16-bit logit near 8 is off by up to 2^-6 in bf16, and its softmax by as much.
  const bool f32_logits = golden_.about.logit_tolerance <= 1e-5;
  expect_routing(golden_, route(own_logits()).view(), f32_logits ? 1e-5 : 4e-2);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenRouting, ::testing::ValuesIn(kGoldenCases),
                         [](const auto& golden_case) { return std::string(golden_case.param.name); });

TEST(Golden, EveryCaseIsListed) {
  std::set<std::string> listed, found;
  for (const GoldenCase& c : kGoldenCases) listed.emplace(c.name);
  for (const auto& entry : std::filesystem::directory_iterator(EPMOE_TEST_DATA))
    if (std::filesystem::exists(entry.path() / "golden.safetensors")) found.insert(entry.path().filename().string());
  EXPECT_EQ(listed, found);
}

}  // namespace
}  // namespace epmoe::test
