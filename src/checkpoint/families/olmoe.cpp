#include "checkpoint/families/family_rules.hpp"

namespace epmoe::checkpoint {

FamilyRules olmoe(const ConfigReader& config) {
  FamilyRules rules = common_rules(config, "num_experts", "intermediate_size");
  rules.config.routing.renormalize = config.boolean("norm_topk_prob", false);
  return rules;
}

}  // namespace epmoe::checkpoint
