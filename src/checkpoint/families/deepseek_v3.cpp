#include <fmt/format.h>

#include "checkpoint/families/family_rules.hpp"

namespace epmoe::checkpoint {

FamilyRules deepseek_v3(const ConfigReader& config) {
  FamilyRules rules = common_rules(config, "n_routed_experts", "moe_intermediate_size");
  RoutingConfig& routing = rules.config.routing;
  // Hugging Face's class is hard-wired to these two; a config that says otherwise belongs to another model.
  require_setting(config, "scoring_func", {"sigmoid"});
  require_setting(config, "topk_method", {"noaux_tc"});
  routing.score = RoutingConfig::Score::sigmoid;
  routing.logits_in_f32 = true;
  routing.has_correction_bias = true;
  rules.correction_bias = "gate.e_score_correction_bias";
  routing.renormalize = config.boolean("norm_topk_prob", true);
  routing.renormalize_epsilon = 1e-20F;
  add_groups(rules, config);
  routing.group_score = RoutingConfig::GroupScore::sum_of_top2;
  if (routing.groups > 1 && rules.config.experts / routing.groups < 2)
    config.refuse(
        "n_group", fmt::format("{}", routing.groups),
        fmt::format("at most {}: a group's score is the sum of its two best experts", rules.config.experts / 2));
  add_scaling(rules, config, 2.5);
  add_first_dense(rules, config, 3);
  add_shared_experts(rules, config);
  return rules;
}

}  // namespace epmoe::checkpoint
