#include "route/token_router.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "epmoe/core/error.hpp"
#include "route/scores.hpp"

namespace epmoe::route {
namespace {

constexpr std::int64_t kTokensPerTask = 32;
constexpr float kNever = -std::numeric_limits<float>::infinity();

}  // namespace

Scratch::Scratch(const MoeConfig& config)
    : scores(static_cast<std::size_t>(config.experts)),
      selection(static_cast<std::size_t>(config.experts)),
      group_scores(static_cast<std::size_t>(config.routing.groups)),
      best_groups(static_cast<std::size_t>(config.routing.top_groups)) {}

TokenRouter::TokenRouter(const MoeConfig& config, std::vector<float> correction_bias)
    : config_(config), correction_bias_(std::move(correction_bias)) {}

void TokenRouter::route(TypedView<const float, Token, Expert> logits, TypedView<std::int32_t, Token, TopK> ids,
                        TypedView<float, Token, TopK> weights, const ExecutionContext& context) const {
  if (logits.cols != config_.experts)
    throw InputError(fmt::format("route: logits have {} columns, want {} experts", logits.cols, config_.experts));
  if (ids.cols != config_.top_k || weights.cols != config_.top_k)
    throw InputError(fmt::format("route: ids have {} and weights {} columns, want top_k = {}", ids.cols, weights.cols,
                                 config_.top_k));
  if (ids.rows != logits.rows || weights.rows != logits.rows)
    throw InputError(
        fmt::format("route: {} rows of logits, but {} of ids and {} of weights", logits.rows, ids.rows, weights.rows));
  const std::int64_t tasks = ceil_div(logits.rows, kTokensPerTask);
  if (tasks == 0) return;
  const auto experts = static_cast<std::size_t>(config_.experts);
  const auto top_k = static_cast<std::size_t>(config_.top_k);
  std::vector<Scratch> scratch(static_cast<std::size_t>(context.executor->workers()), Scratch(config_));
  context.executor->run(
      tasks,
      [&](std::int64_t task, int worker) {
        const std::int64_t end = std::min(logits.rows, (task + 1) * kTokensPerTask);
        for (std::int64_t t = task * kTokensPerTask; t < end; ++t) {
          const std::span<float> token_weights(weights.row(t), top_k);
          choose({logits.row(t), experts}, {ids.row(t), top_k}, token_weights,
                 scratch[static_cast<std::size_t>(worker)]);
          normalize(token_weights);
        }
      },
      context.progress);
}

void TokenRouter::score(std::span<const float> logits, Scratch& scratch) const {
  if (config_.routing.score == RoutingConfig::Score::softmax) {
    softmax(logits, scratch.scores);
  } else {
    sigmoid(logits, scratch.scores);
  }
}

void TokenRouter::add_bias(Scratch& scratch) const {
  for (std::size_t e = 0; e < scratch.scores.size(); ++e) {
    const float biased = scratch.scores[e] + correction_bias_[e];
    scratch.selection[e] = std::isnan(biased) ? kNever : biased;
  }
}

void TokenRouter::normalize(std::span<float> weights) const {
  const RoutingConfig& routing = config_.routing;
  if (routing.renormalize) {
    float sum = 0.0F;
    for (const float weight : weights) sum += weight;
    sum += routing.renormalize_epsilon;
    const float divisor = sum > 0.0F ? sum : 1.0F;
    for (float& weight : weights) weight /= divisor;
  }
  for (float& weight : weights) weight *= routing.scaling_factor;
}

void weigh(const Scratch& scratch, std::span<const std::int32_t> ids, std::span<float> weights) {
  for (std::size_t j = 0; j < ids.size(); ++j) {
    const auto e = static_cast<std::size_t>(ids[j]);
    weights[j] = scratch.selection[e] == kNever ? 0.0F : scratch.scores[e];
  }
}

}  // namespace epmoe::route
