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
/// ties. A NaN score counts as 0 or, if a bias is added, as −Inf with weight 0, so ids are always distinct and in range
/// and weights finite. One NaN or +Inf logit spoils a softmax: its row gets ids 0 to k − 1 and weights 0.
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

/// logits[t][e] = x[t] . weight[e], weight [experts, hidden]. x and weight may be f32, f16 or bf16; everything is
/// widened to f32 and accumulated in f32 in one fixed order (16 partial sums over hidden, joined as a tree), so the
/// bits do not depend on threads, tokens or ISA. Logits are never rounded to 16 bits, in which experts would tie. A
/// router in bf16 works on bf16 rows: if the weight is bf16, x is rounded to bf16 first unless `logits_in_f32`
/// (RoutingConfig's flag: DeepSeek). f16 weights do not round x, whose range they lack. Throws InputError on shapes.
void router_logits(ConstMatrixView x, ConstMatrixView weight, TypedView<float, Token, Expert> logits,
                   const ExecutionContext& context, bool logits_in_f32 = false);

}  // namespace epmoe
