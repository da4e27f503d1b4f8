#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "epmoe/core/execution_context.hpp"
#include "epmoe/core/moe_config.hpp"
#include "epmoe/core/stage_data.hpp"

/// Stage 1: logits → ids and weights. Local; const methods are thread-safe. f32 throughout; the lowest index wins
/// ties; a non-finite score counts as 0 (softmax, sigmoid) or −inf (biased), so ids are always distinct and in range.
namespace epmoe {

class Router {
 public:
  virtual ~Router() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// logits [tokens, experts] f32, any stride. Writes ids and weights [tokens, top_k] in descending order of score.
  virtual void route(TypedView<const float, Token, Expert> logits, TypedView<std::int32_t, Token, TopK> ids,
                     TypedView<float, Token, TopK> weights, const ExecutionContext& context) const = 0;
};

/// `correction_bias` [experts] when config.routing.has_correction_bias. Throws ConfigError on settings that no router
/// here serves, InputError on a non-finite bias.
std::unique_ptr<Router> make_router(const MoeConfig& config, std::vector<float> correction_bias = {});

/// logits[t][e] = x[t] . weight[e], accumulated in f32 over hidden in ascending order, whatever the number of threads
/// or tokens. weight [experts, hidden]; x rounded to bf16 first if the weight is bf16 and config does not ask for f32.
void router_logits(ConstMatrixView x, ConstMatrixView weight, TypedView<float, Token, Expert> logits,
                   const ExecutionContext& context);

}  // namespace epmoe
