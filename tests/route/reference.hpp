#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "epmoe/core/moe_config.hpp"

/// Routing written a second time, in f64 and from the formulas, for finite logits.
namespace epmoe::test {

struct ReferenceRouting {
  std::vector<std::int32_t> ids;
  std::vector<double> weights;
  double margin = 0.0;  ///< least distance between two values whose order decides ids or groups
};

namespace reference {

/// Indices in descending order of value; notes how close the k best and the first loser lie.
inline std::vector<std::int32_t> order(const std::vector<double>& values, std::size_t k, double& margin) {
  std::vector<std::int32_t> by_value(values.size());
  std::iota(by_value.begin(), by_value.end(), 0);
  const auto at = [&](std::size_t i) { return values[static_cast<std::size_t>(by_value[i])]; };
  std::stable_sort(by_value.begin(), by_value.end(), [&](auto a, auto b) {
    return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
  });
  for (std::size_t i = 0; i < k && i + 1 < values.size(); ++i)
    if (std::isfinite(at(i + 1))) margin = std::min(margin, at(i) - at(i + 1));
  return by_value;
}

}  // namespace reference

inline ReferenceRouting reference_routing(const float* logits, const MoeConfig& config,
                                          const std::vector<float>& bias) {
  const RoutingConfig& r = config.routing;
  const auto experts = static_cast<std::size_t>(config.experts);
  const auto k = static_cast<std::size_t>(config.top_k);
  std::vector<double> scores(experts);
  if (r.score == RoutingConfig::Score::softmax) {
    const double highest = *std::max_element(logits, logits + experts);
    double sum = 0.0;
    for (std::size_t e = 0; e < experts; ++e) sum += scores[e] = std::exp(static_cast<double>(logits[e]) - highest);
    for (double& s : scores) s /= sum;
  } else {
    for (std::size_t e = 0; e < experts; ++e) scores[e] = 1.0 / (1.0 + std::exp(-static_cast<double>(logits[e])));
  }
  ReferenceRouting out;
  out.margin = std::numeric_limits<double>::infinity();
  std::vector<double> selection = scores;
  for (std::size_t e = 0; e < bias.size(); ++e) selection[e] += static_cast<double>(bias[e]);
  if (r.groups > 1) {
    const std::size_t groups = static_cast<std::size_t>(r.groups);
    const std::size_t size = experts / groups;
    std::vector<double> group_scores;
    for (std::size_t g = 0; g < groups; ++g) {
      std::vector<double> members(selection.begin() + static_cast<std::ptrdiff_t>(g * size),
                                  selection.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
      std::sort(members.rbegin(), members.rend());
      group_scores.push_back(r.group_score == RoutingConfig::GroupScore::max ? members[0] : members[0] + members[1]);
    }
    const auto best = reference::order(group_scores, static_cast<std::size_t>(r.top_groups), out.margin);
    for (std::size_t g = static_cast<std::size_t>(r.top_groups); g < groups; ++g)
      for (std::size_t i = 0; i < size; ++i)
        selection[static_cast<std::size_t>(best[g]) * size + i] = -std::numeric_limits<double>::infinity();
  }
  out.ids = reference::order(selection, k, out.margin);
  out.ids.resize(k);
  double sum = static_cast<double>(r.renormalize_epsilon);
  for (const auto id : out.ids) sum += scores[static_cast<std::size_t>(id)];
  for (const auto id : out.ids) {
    const double weight = scores[static_cast<std::size_t>(id)];
    out.weights.push_back((r.renormalize ? weight / sum : weight) * static_cast<double>(r.scaling_factor));
  }
  return out;
}

}  // namespace epmoe::test
