#include "route/scores.hpp"
#include "route/select.hpp"
#include "route/token_router.hpp"

namespace epmoe::route {
namespace {

/// Softmax over all experts, then the k best (Mixtral, Qwen, OLMoE, DeepSeek-V2-Lite).
class SoftmaxTopK final : public TokenRouter {
 public:
  using TokenRouter::TokenRouter;
  [[nodiscard]] std::string_view name() const override { return "softmax_topk"; }

 protected:
  void choose(std::span<const float> logits, std::span<std::int32_t> ids, std::span<float> weights,
              Scratch& scratch) const override {
    softmax(logits, scratch.scores);
    zero_nans(scratch.scores);
    select_highest(scratch.scores, ids);
    for (std::size_t j = 0; j < ids.size(); ++j) weights[j] = scratch.scores[static_cast<std::size_t>(ids[j])];
  }
};

}  // namespace

std::unique_ptr<Router> make_softmax_topk(const MoeConfig& config) {
  return std::make_unique<SoftmaxTopK>(config, std::vector<float>{});
}

}  // namespace epmoe::route
