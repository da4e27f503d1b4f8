#include <algorithm>
#include <limits>
#include <utility>

#include "route/scores.hpp"
#include "route/select.hpp"
#include "route/token_router.hpp"

namespace epmoe::route {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

float sum_of_two_highest(std::span<const float> scores) {
  float first = kNever;
  float second = kNever;
  for (const float score : scores) {
    if (score > first) {
      second = first;
      first = score;
    } else if (score > second) {
      second = score;
    }
  }
  return first + second;
}

/// The k best within the `top_groups` best of `groups` equal groups of consecutive experts. A group counts as its best
/// score (DeepSeek-V2) or the sum of its two best (DeepSeek-V3). Other groups are masked with −Inf, not 0 as in early
/// implementations: an expert of a chosen group whose biased score is negative still beats them.
class GroupedTopK final : public TokenRouter {
 public:
  using TokenRouter::TokenRouter;
  [[nodiscard]] std::string_view name() const override { return "grouped_topk"; }

 protected:
  void choose(std::span<const float> logits, std::span<std::int32_t> ids, std::span<float> weights,
              Scratch& scratch) const override {
    score(logits, scratch);
    if (correction_bias().empty()) {
      zero_nans(scratch.scores);
      scratch.selection = scratch.scores;
    } else {
      add_bias(scratch);
    }
    mask_groups(scratch);
    select_highest(scratch.selection, ids);
    weigh(scratch, ids, weights);
  }

 private:
  void mask_groups(Scratch& scratch) const {
    const auto groups = static_cast<std::size_t>(config().routing.groups);
    const std::size_t size = scratch.selection.size() / groups;
    const auto group = [&](std::size_t g) { return std::span<float>(scratch.selection).subspan(g * size, size); };
    for (std::size_t g = 0; g < groups; ++g)
      scratch.group_scores[g] = config().routing.group_score == RoutingConfig::GroupScore::max
                                    ? *std::max_element(group(g).begin(), group(g).end())
                                    : sum_of_two_highest(group(g));
    select_highest(scratch.group_scores, scratch.best_groups);
    std::sort(scratch.best_groups.begin(), scratch.best_groups.end());
    auto kept = scratch.best_groups.begin();
    for (std::size_t g = 0; g < groups; ++g) {
      if (kept != scratch.best_groups.end() && static_cast<std::size_t>(*kept) == g) {
        ++kept;
      } else {
        std::fill(group(g).begin(), group(g).end(), kNever);
      }
    }
  }
};

}  // namespace

std::unique_ptr<Router> make_grouped_topk(const MoeConfig& config, std::vector<float> correction_bias) {
  return std::make_unique<GroupedTopK>(config, std::move(correction_bias));
}

}  // namespace epmoe::route
