#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "epmoe/core/moe_config.hpp"
#include "epmoe/route/router.hpp"

/// What all routers share: shape checks, the parallel loop over tokens, scratch, and the weights of chosen experts.
namespace epmoe::route {

/// Memory of one worker, reused from token to token.
struct Scratch {
  explicit Scratch(const MoeConfig& config);
  std::vector<float> scores;              ///< [experts] what weighs
  std::vector<float> selection;           ///< [experts] what selects, where that differs
  std::vector<float> group_scores;        ///< [groups]
  std::vector<std::int32_t> best_groups;  ///< [top_groups]
};

class TokenRouter : public Router {
 public:
  TokenRouter(const MoeConfig& config, std::vector<float> correction_bias);
  void route(TypedView<const float, Token, Expert> logits, TypedView<std::int32_t, Token, TopK> ids,
             TypedView<float, Token, TopK> weights, const ExecutionContext& context) const final;

 protected:
  /// Chooses the ids of one token and writes its weights as scores; normalising and scaling follow in route().
  virtual void choose(std::span<const float> logits, std::span<std::int32_t> ids, std::span<float> weights,
                      Scratch& scratch) const = 0;
  /// Softmax or sigmoid as configured, into scratch.scores; NaN where the logits are.
  void score(std::span<const float> logits, Scratch& scratch) const;
  /// scratch.selection = scores + correction bias; −Inf where that is NaN.
  void add_bias(Scratch& scratch) const;

  [[nodiscard]] const MoeConfig& config() const { return config_; }
  [[nodiscard]] const std::vector<float>& correction_bias() const { return correction_bias_; }

 private:
  void normalize(std::span<float> weights) const;
  MoeConfig config_;
  std::vector<float> correction_bias_;
};

/// weights[j] = scores[ids[j]], or 0 where the expert was chosen only for want of others (selection −Inf).
void weigh(const Scratch& scratch, std::span<const std::int32_t> ids, std::span<float> weights);

// One per routing method.
std::unique_ptr<Router> make_softmax_topk(const MoeConfig& config);
std::unique_ptr<Router> make_sigmoid_topk(const MoeConfig& config);
std::unique_ptr<Router> make_biased_topk(const MoeConfig& config, std::vector<float> correction_bias);
std::unique_ptr<Router> make_grouped_topk(const MoeConfig& config, std::vector<float> correction_bias);

}  // namespace epmoe::route
