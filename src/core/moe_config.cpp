#include "epmoe/core/moe_config.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/name_table.hpp"
#include "epmoe/core/error.hpp"

namespace epmoe {
namespace {

constexpr std::int64_t kMaxExperts = 1024;
constexpr std::int64_t kMaxTopK = 32;

constexpr NamedValue<Activation> kActivations[] = {{Activation::silu, "silu"},
                                                   {Activation::gelu, "gelu"},
                                                   {Activation::swiglu_oai, "swigluoai"},
                                                   {Activation::gelu_tanh, "gelu_tanh"},
                                                   {Activation::relu2, "relu2"},
                                                   {Activation::silu_clamped, "silu_clamped"},
                                                   {Activation::silu_no_mul, "silu_no_mul"},
                                                   {Activation::gelu_no_mul, "gelu_no_mul"},
                                                   {Activation::gelu_tanh_no_mul, "gelu_tanh_no_mul"},
                                                   {Activation::relu2_no_mul, "relu2_no_mul"}};

template <class T>
void want(bool ok, std::string_view field, T found, const std::string& wanted) {
  if (!ok) throw ConfigError(fmt::format("MoE config: {} is {}, wanted {}", field, found, wanted));
}

void validate_routing(const RoutingConfig& r, std::int64_t experts, std::int64_t top_k) {
  want(std::isfinite(r.renormalize_epsilon) && r.renormalize_epsilon >= 0.0F, "renormalize_epsilon",
       r.renormalize_epsilon, "a finite number >= 0");
  want(std::isfinite(r.scaling_factor), "scaling_factor", r.scaling_factor, "a finite number");
  want(r.groups >= 1 && r.groups <= experts && experts % r.groups == 0, "groups", r.groups,
       fmt::format("a divisor of experts = {}", experts));
  want(r.top_groups >= 1 && r.top_groups <= r.groups, "top_groups", r.top_groups,
       fmt::format("1 to groups = {}", r.groups));
  const std::int64_t group_size = experts / r.groups;
  want(top_k <= r.top_groups * group_size, "top_k", top_k,
       fmt::format("at most the {} experts of top_groups = {} groups of {}", r.top_groups * group_size, r.top_groups,
                   group_size));
  if (r.groups > 1 && r.group_score == RoutingConfig::GroupScore::sum_of_top2)
    want(group_size >= 2, "groups", r.groups,
         fmt::format("groups of at least 2 of {} experts: the group score is a sum of two", experts));
}

}  // namespace

bool is_gated(Activation activation) {
  switch (activation) {
    case Activation::silu:
    case Activation::gelu:
    case Activation::swiglu_oai:
    case Activation::gelu_tanh:
    case Activation::relu2:
    case Activation::silu_clamped: return true;
    case Activation::silu_no_mul:
    case Activation::gelu_no_mul:
    case Activation::gelu_tanh_no_mul:
    case Activation::relu2_no_mul: break;
  }
  return false;
}
std::vector<Activation> activations() {
  std::vector<Activation> all;
  for (const auto& known : kActivations) all.push_back(known.value);
  return all;
}
std::string_view name(Activation activation) {
  return find_name(kActivations, activation);
}
std::optional<Activation> parse_activation(std::string_view text) {
  return find_value(kActivations, text);
}

void MoeConfig::validate() const {
  want(hidden >= 1, "hidden", hidden, "1 or more");
  want(intermediate >= 1, "intermediate", intermediate, "1 or more");
  want(experts >= 1 && experts <= kMaxExperts, "experts", experts, fmt::format("1 to {}", kMaxExperts));
  want(top_k >= 1 && top_k <= kMaxTopK, "top_k", top_k, fmt::format("1 to {}", kMaxTopK));
  want(top_k <= experts, "top_k", top_k, fmt::format("at most experts = {}", experts));
  validate_routing(routing, experts, top_k);
  want(shared_intermediate >= 0, "shared_intermediate", shared_intermediate, "0 (none) or more");
  want(!shared_gate || shared_intermediate > 0, "shared_gate", shared_gate, "false where shared_intermediate is 0");
  want(!router_weight_on_input || top_k == 1, "router_weight_on_input", router_weight_on_input,
       fmt::format("false for top_k = {}: with more than one expert the input would need more than one factor", top_k));
}

}  // namespace epmoe
