#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "epmoe/core/error.hpp"
#include "route/token_router.hpp"

namespace epmoe {
namespace {

void check_config(const MoeConfig& config) {
  const RoutingConfig& routing = config.routing;
  if (config.experts < 1) throw ConfigError(fmt::format("router: experts is {}, want at least 1", config.experts));
  if (config.top_k < 1 || config.top_k > config.experts)
    throw ConfigError(fmt::format("router: top_k is {}, want 1 to {} (experts)", config.top_k, config.experts));
  if (!std::isfinite(routing.scaling_factor))
    throw ConfigError(fmt::format("router: scaling_factor is {}, want a finite number", routing.scaling_factor));
  if (!(routing.renormalize_epsilon >= 0.0F) || !std::isfinite(routing.renormalize_epsilon))
    throw ConfigError(fmt::format("router: renormalize_epsilon is {}, want a finite number, at least 0",
                                  routing.renormalize_epsilon));
  if (routing.groups < 1 || config.experts % routing.groups != 0)
    throw ConfigError(
        fmt::format("router: groups is {}, want a divisor of experts = {}", routing.groups, config.experts));
  if (routing.top_groups < 1 || routing.top_groups > routing.groups)
    throw ConfigError(
        fmt::format("router: top_groups is {}, want 1 to {} (groups)", routing.top_groups, routing.groups));
  const std::int64_t group_size = config.experts / routing.groups;
  if (routing.groups > 1 && routing.group_score == RoutingConfig::GroupScore::sum_of_top2 && group_size < 2)
    throw ConfigError(fmt::format("router: groups of {} expert cannot be scored by their two best", group_size));
  if (config.top_k > routing.top_groups * group_size)
    throw ConfigError(fmt::format("router: top_k is {}, but {} of {} groups hold only {} experts", config.top_k,
                                  routing.top_groups, routing.groups, routing.top_groups * group_size));
}

void check_bias(const MoeConfig& config, const std::vector<float>& bias) {
  const std::size_t wanted = config.routing.has_correction_bias ? static_cast<std::size_t>(config.experts) : 0;
  if (bias.size() != wanted)
    throw ConfigError(fmt::format("router: the correction bias has {} values, want {}", bias.size(), wanted));
  for (std::size_t e = 0; e < bias.size(); ++e)
    if (!std::isfinite(bias[e]))
      throw InputError(fmt::format("router: the correction bias of expert {} is {}, want a finite number", e, bias[e]));
}

}  // namespace

std::unique_ptr<Router> make_router(const MoeConfig& config, std::vector<float> correction_bias) {
  check_config(config);
  check_bias(config, correction_bias);
  if (config.routing.groups > 1) return route::make_grouped_topk(config, std::move(correction_bias));
  if (config.routing.has_correction_bias) return route::make_biased_topk(config, std::move(correction_bias));
  if (config.routing.score == RoutingConfig::Score::sigmoid) return route::make_sigmoid_topk(config);
  return route::make_softmax_topk(config);
}

}  // namespace epmoe
