#include "checkpoint/families/family_rules.hpp"

namespace epmoe::checkpoint {

FamilyRules qwen2_moe(const ConfigReader& config) {
  FamilyRules rules = common_rules(config, "num_experts", "moe_intermediate_size");
  rules.config.routing.renormalize = config.boolean("norm_topk_prob", false);
  add_sparse_step(rules, config);
  add_gated_shared_expert(rules, config);
  return rules;
}

}  // namespace epmoe::checkpoint
