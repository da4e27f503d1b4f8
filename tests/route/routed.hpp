#pragma once
#include <cstdint>
#include <vector>

#include "epmoe/core/random.hpp"
#include "epmoe/core/stage_data.hpp"
#include "epmoe/route/router.hpp"
#include "support/world.hpp"

namespace epmoe::test {

struct RouterCase {
  std::int64_t experts, top_k;
  RoutingConfig routing;
};

inline MoeConfig moe_config(const RouterCase& c) {
  MoeConfig config;
  config.hidden = 64;
  config.intermediate = 64;
  config.experts = c.experts;
  config.top_k = c.top_k;
  config.routing = c.routing;
  return config;
}

inline std::vector<float> random_matrix(std::int64_t rows, std::int64_t cols, std::uint64_t seed, float scale = 1.0F) {
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      values[static_cast<std::size_t>(r * cols + c)] =
          scale * random_normal(seed, static_cast<std::uint64_t>(r), static_cast<std::uint64_t>(c));
  return values;
}

inline OwnedRouting route(const Router& router, const MoeConfig& config, const std::vector<float>& logits,
                          int threads = 2) {
  const TestContext context(threads);
  const std::int64_t tokens = static_cast<std::int64_t>(logits.size()) / config.experts;
  OwnedRouting out(tokens, config.top_k);
  router.route({logits.data(), tokens, config.experts, config.experts}, out.ids(), out.weights(), context);
  return out;
}

/// Descending in score is not checked here: with a bias weights do not descend.
inline void expect_distinct_and_finite(const Routing& routing, std::int64_t experts) {
  for (std::int64_t t = 0; t < routing.tokens(); ++t) {
    std::vector<bool> seen(static_cast<std::size_t>(experts));
    for (std::int64_t j = 0; j < routing.top_k(); ++j) {
      const std::int32_t id = routing.ids(t, j);
      ASSERT_TRUE(id >= 0 && id < experts) << "token " << t << ": id " << id;
      EXPECT_FALSE(seen[static_cast<std::size_t>(id)]) << "token " << t << ": id " << id << " twice";
      seen[static_cast<std::size_t>(id)] = true;
      EXPECT_TRUE(std::isfinite(routing.weights(t, j))) << "token " << t << ": weight " << routing.weights(t, j);
    }
  }
}

}  // namespace epmoe::test
