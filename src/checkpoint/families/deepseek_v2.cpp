#include "checkpoint/families/family_rules.hpp"

namespace epmoe::checkpoint {

FamilyRules deepseek_v2(const ConfigReader& config) {
  FamilyRules rules = common_rules(config, "n_routed_experts", "moe_intermediate_size");
  rules.config.routing.logits_in_f32 = true;
  require_setting(config, "scoring_func", {"softmax"});
  require_setting(config, "topk_method", {"greedy", "group_limited_greedy"});
  // n_group means nothing under greedy. Masked groups are set to 0 in Hugging Face's code: below every softmax score,
  // so the same as -inf as long as the groups left can hold top_k experts, which add_groups makes sure of.
  if (config.text("topk_method") == "group_limited_greedy") {
    if (!config.has("n_group"))
      config.refuse("n_group", "missing or null", "a number, since topk_method is group_limited_greedy");
    add_groups(rules, config);
  }
  rules.config.routing.group_score = RoutingConfig::GroupScore::max;
  // Hugging Face's class reads norm_topk_prob and never uses it (4.57 and 5.x alike), so the weights are only scaled.
  // The models' first code divided by the sum, without scaling, if it was set; every release sets it to false.
  if (config.boolean("norm_topk_prob", false))
    rules.notes.emplace_back("norm_topk_prob is true; ignored for deepseek_v2, as in Hugging Face's code");
  add_scaling(rules, config, 1.0);
  add_first_dense(rules, config, 0);
  add_shared_experts(rules, config);
  return rules;
}

}  // namespace epmoe::checkpoint
