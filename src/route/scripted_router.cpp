#include "epmoe/route/scripted_router.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "epmoe/core/error.hpp"
#include "epmoe/core/random.hpp"

namespace epmoe {
namespace {

/// The random numbers of one token: a stream of its own.
class Stream {
 public:
  Stream(std::uint64_t seed, std::uint64_t token) : seed_(seed), token_(token) {}
  double uniform() { return static_cast<double>(random_bits(seed_, token_, draws_++) >> 11U) * 0x1p-53; }
  std::size_t below(std::size_t n) {
    return std::min(n - 1, static_cast<std::size_t>(uniform() * static_cast<double>(n)));
  }

 private:
  std::uint64_t seed_;
  std::uint64_t token_;
  std::uint64_t draws_ = 0;
};

/// The first ids.size() steps of a Fisher-Yates shuffle; undone afterwards, so that `pool` can be used again.
void draw_distinct(Stream& stream, std::span<std::int32_t> pool, std::span<std::int32_t> ids) {
  std::vector<std::pair<std::size_t, std::size_t>> swaps;
  for (std::size_t j = 0; j < ids.size(); ++j) {
    const std::size_t other = j + stream.below(pool.size() - j);
    std::swap(pool[j], pool[other]);
    swaps.emplace_back(j, other);
    ids[j] = pool[j];
  }
  for (auto s = swaps.rbegin(); s != swaps.rend(); ++s) std::swap(pool[s->first], pool[s->second]);
}

/// Draws without replacement with probability ~ 1 / (e + 1).
void draw_zipf(Stream& stream, std::int64_t experts, std::span<std::int32_t> ids) {
  std::vector<double> share(static_cast<std::size_t>(experts));
  for (std::size_t e = 0; e < share.size(); ++e) share[e] = 1.0 / static_cast<double>(e + 1);
  for (std::int32_t& id : ids) {
    // Summed anew each time: subtracting what was drawn would leave rounding errors as the share of nobody.
    double left = stream.uniform() * std::accumulate(share.begin(), share.end(), 0.0);
    std::size_t chosen = share.size();
    for (std::size_t e = 0; e < share.size(); ++e) {
      if (share[e] == 0.0) continue;
      chosen = e;
      left -= share[e];
      if (left < 0.0) break;
    }
    id = static_cast<std::int32_t>(chosen);
    share[chosen] = 0.0;
  }
}

/// Positive, descending, summing to 1.
void draw_weights(Stream& stream, std::span<float> weights) {
  for (float& weight : weights) weight = 0.25F + static_cast<float>(stream.uniform());
  std::sort(weights.begin(), weights.end(), std::greater<>());
  const float sum = std::accumulate(weights.begin(), weights.end(), 0.0F);
  for (float& weight : weights) weight /= sum;
}

std::vector<std::int32_t> experts_of_rank(const Placement& placement, std::int32_t rank) {
  std::vector<std::int32_t> experts;
  for (const std::int32_t physical : placement.local_slots(rank))
    experts.push_back(placement.slot(physical).logical_expert);
  std::sort(experts.begin(), experts.end());
  experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
  return experts;
}

void check(Script script, std::int64_t top_k, const Placement& placement, std::int32_t hot) {
  if (top_k < 1) throw InputError(fmt::format("scripted routing: top_k is {}, want at least 1", top_k));
  const bool distinct = script == Script::uniform || script == Script::zipf || script == Script::hot_expert ||
                        script == Script::some_none;
  if (distinct && top_k > placement.experts())
    throw InputError(
        fmt::format("scripted routing: top_k is {}, want at most {} (experts)", top_k, placement.experts()));
  const std::int64_t limit = script == Script::hot_rank ? placement.ranks() : placement.experts();
  if ((script == Script::hot_rank || script == Script::hot_expert) && (hot < 0 || hot >= limit))
    throw InputError(fmt::format("scripted routing: hot is {}, want 0 to {}", hot, limit - 1));
}

}  // namespace

std::string_view name(Script script) {
  switch (script) {
    case Script::uniform: return "uniform";
    case Script::zipf: return "zipf";
    case Script::hot_expert: return "hot_expert";
    case Script::hot_rank: return "hot_rank";
    case Script::none: return "none";
    case Script::some_none: return "some_none";
    case Script::duplicated: return "duplicated";
  }
  return "unknown";
}

OwnedRouting scripted_routing(Script script, std::int64_t tokens, std::int64_t top_k, const Placement& placement,
                              std::uint64_t seed, std::int64_t global_first_token, std::int32_t hot) {
  check(script, top_k, placement, hot);
  OwnedRouting routing(tokens, top_k);
  // What distinct ids are drawn from.
  std::vector<std::int32_t> pool(static_cast<std::size_t>(placement.experts()));
  std::iota(pool.begin(), pool.end(), 0);
  if (script == Script::hot_rank) pool = experts_of_rank(placement, hot);
  if (script == Script::hot_expert) pool.erase(pool.begin() + hot);

  for (std::int64_t t = 0; t < tokens; ++t) {
    Stream stream(seed, static_cast<std::uint64_t>(global_first_token + t));
    const std::span<std::int32_t> ids(routing.ids().row(t), static_cast<std::size_t>(top_k));
    const std::span<float> weights(routing.weights().row(t), static_cast<std::size_t>(top_k));
    draw_weights(stream, weights);
    switch (script) {
      case Script::uniform:
      case Script::some_none: draw_distinct(stream, pool, ids); break;
      case Script::zipf: draw_zipf(stream, placement.experts(), ids); break;
      case Script::hot_expert:
        ids[0] = hot;
        draw_distinct(stream, pool, ids.subspan(1));
        break;
      case Script::hot_rank: {
        const std::size_t distinct = std::min(pool.size(), ids.size());
        draw_distinct(stream, pool, ids.first(distinct));
        if (distinct > 0)
          for (std::size_t j = distinct; j < ids.size(); ++j) ids[j] = ids[j - distinct];
        break;
      }
      case Script::none: break;
      case Script::duplicated: std::fill(ids.begin(), ids.end(), pool[stream.below(pool.size())]); break;
    }
    if (script == Script::some_none)
      for (std::int32_t& id : ids)
        if (stream.uniform() < 1.0 / 3.0) id = kNoExpert;
    for (std::size_t j = 0; j < ids.size(); ++j)
      if (ids[j] == kNoExpert) weights[j] = std::numeric_limits<float>::quiet_NaN();
  }
  return routing;
}

}  // namespace epmoe
