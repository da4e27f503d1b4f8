#include <utility>

#include "route/select.hpp"
#include "route/token_router.hpp"

namespace epmoe::route {
namespace {

/// The k best of score + correction bias; the bias selects and never weighs (Kimi-K2, GLM-4.5, MiniMax-M2).
class BiasedTopK final : public TokenRouter {
 public:
  using TokenRouter::TokenRouter;
  [[nodiscard]] std::string_view name() const override { return "biased_topk"; }

 protected:
  void choose(std::span<const float> logits, std::span<std::int32_t> ids, std::span<float> weights,
              Scratch& scratch) const override {
    score(logits, scratch);
    add_bias(scratch);
    select_highest(scratch.selection, ids);
    weigh(scratch, ids, weights);
  }
};

}  // namespace

std::unique_ptr<Router> make_biased_topk(const MoeConfig& config, std::vector<float> correction_bias) {
  return std::make_unique<BiasedTopK>(config, std::move(correction_bias));
}

}  // namespace epmoe::route
