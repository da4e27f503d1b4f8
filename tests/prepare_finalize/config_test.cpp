#include <gtest/gtest.h>

#include "epmoe/prepare_finalize/prepare_finalize.hpp"

namespace epmoe {
namespace {

std::string refusal(const PrepareFinalizeConfig& config) {
  try {
    config.validate();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

TEST(PrepareFinalizeConfig, NamesFieldFoundAndWanted) {
  const PrepareFinalizeConfig good{.hidden = 8, .top_k = 2, .experts = 4};
  EXPECT_EQ(refusal(good), "");
  auto c = good;
  c.hidden = 0;
  EXPECT_EQ(refusal(c), "hidden: found 0, wanted at least 1");
  c = good;
  c.top_k = 65536;
  EXPECT_EQ(refusal(c), "top_k: found 65536, wanted at most 65535");
  c = good;
  c.reproducible = true;
  EXPECT_EQ(refusal(c), "");
  c.combine = CombineType::bf16;
  EXPECT_NE(refusal(c).find("reproducible: found combine type bf16, wanted f32"), std::string::npos);
  c = good;
  c.router_weight_on_input = true;
  EXPECT_NE(refusal(c).find("router_weight_on_input: found top_k 2, wanted 1"), std::string::npos);
  c.top_k = 1;
  EXPECT_EQ(refusal(c), "");
  c.max_num_tokens_per_rank = -1;
  EXPECT_NE(refusal(c).find("max_num_tokens_per_rank: found -1"), std::string::npos);
}

}  // namespace
}  // namespace epmoe
