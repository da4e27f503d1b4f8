#include "checkpoint/families/family_rules.hpp"

namespace epmoe::checkpoint {

FamilyRules mixtral(const ConfigReader& config) {
  FamilyRules rules = common_rules(config, "num_local_experts", "intermediate_size");
  rules.config.routing.renormalize = true;  // always: there is no norm_topk_prob in this family
  // transformers 5 saves its own names (mlp.) in the fused layout; some converters name the matrices *_proj.
  rules.blocks = {"block_sparse_moe.", "mlp."};
  rules.expert_names.insert(rules.expert_names.begin(), {"w1.weight", "w3.weight", "w2.weight"});
  return rules;
}

}  // namespace epmoe::checkpoint
