#include "route/scores.hpp"
#include "route/select.hpp"
#include "route/token_router.hpp"

namespace epmoe::route {
namespace {

/// Sigmoid of each logit, then the k best.
class SigmoidTopK final : public TokenRouter {
 public:
  using TokenRouter::TokenRouter;
  [[nodiscard]] std::string_view name() const override { return "sigmoid_topk"; }

 protected:
  void choose(std::span<const float> logits, std::span<std::int32_t> ids, std::span<float> weights,
              Scratch& scratch) const override {
    sigmoid(logits, scratch.scores);
    zero_nans(scratch.scores);
    select_highest(scratch.scores, ids);
    for (std::size_t j = 0; j < ids.size(); ++j) weights[j] = scratch.scores[static_cast<std::size_t>(ids[j])];
  }
};

}  // namespace

std::unique_ptr<Router> make_sigmoid_topk(const MoeConfig& config) {
  return std::make_unique<SigmoidTopK>(config, std::vector<float>{});
}

}  // namespace epmoe::route
