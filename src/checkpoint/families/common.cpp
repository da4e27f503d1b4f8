#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/families/family_rules.hpp"
#include "checkpoint/text.hpp"

namespace epmoe::checkpoint {
namespace {

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 24;  // keeps products of three extents inside 64 bits
constexpr std::int64_t kMaxExperts = 65536;
constexpr std::int64_t kMaxLayers = 65536;

Activation activation_of(const ConfigReader& config) {
  const std::string text = config.text("hidden_act").value_or("silu");  // every family's default in Hugging Face's code
  if (text == "silu" || text == "swish") return Activation::silu;
  if (text == "gelu") return Activation::gelu;
  config.refuse("hidden_act", in_quotes(text), "silu or gelu");
}

}  // namespace

FamilyRules common_rules(const ConfigReader& config, std::string_view experts_key, std::string_view intermediate_key) {
  FamilyRules rules;
  MoeConfig& moe = rules.config;
  moe.hidden = config.required({"hidden_size"}, 1, kMaxExtent);
  moe.intermediate = config.required({intermediate_key}, 1, kMaxExtent);
  // transformers 5 renames the key of some families when it saves.
  moe.experts = config.required({experts_key, "num_local_experts", "num_experts", "n_routed_experts"}, 1, kMaxExperts);
  moe.top_k = config.required({"num_experts_per_tok"}, 1, moe.experts);
  moe.activation = activation_of(config);
  rules.num_hidden_layers = config.required({"num_hidden_layers"}, 1, kMaxLayers);
  rules.sparse = [](std::int64_t) { return true; };
  rules.sparse_rule = "every layer is one";
  rules.intermediate_key = intermediate_key;
  return rules;
}

void add_sparse_step(FamilyRules& rules, const ConfigReader& config) {
  const std::int64_t step = config.integer("decoder_sparse_step", 1);
  if (step < 1) config.refuse("decoder_sparse_step", fmt::format("{}", step), "at least 1");
  const std::vector<std::int64_t> dense = config.integers("mlp_only_layers");
  rules.sparse = [step, dense](std::int64_t layer) {
    return (layer + 1) % step == 0 && std::find(dense.begin(), dense.end(), layer) == dense.end();
  };
  rules.sparse_rule = fmt::format("decoder_sparse_step {}, mlp_only_layers {}", step, shape_text(dense));
}

void add_first_dense(FamilyRules& rules, const ConfigReader& config, std::int64_t absent) {
  const std::int64_t first = config.integer("first_k_dense_replace", absent);
  if (first < 0) config.refuse("first_k_dense_replace", fmt::format("{}", first), "at least 0");
  rules.sparse = [first](std::int64_t layer) { return layer >= first; };
  rules.sparse_rule = fmt::format("first_k_dense_replace {}", first);
}

void add_shared_experts(FamilyRules& rules, const ConfigReader& config) {
  const std::int64_t count = config.integer("n_shared_experts", 0);
  if (count < 0 || count > kMaxExperts)
    config.refuse("n_shared_experts", fmt::format("{}", count), fmt::format("0 to {}", kMaxExperts));
  rules.config.shared_intermediate = count * rules.config.intermediate;
  if (count > 0) rules.shared = "shared_experts.";
}

void add_gated_shared_expert(FamilyRules& rules, const ConfigReader& config) {
  const std::int64_t size = config.integer("shared_expert_intermediate_size", 0);
  if (size < 0 || size > kMaxExtent)
    config.refuse("shared_expert_intermediate_size", fmt::format("{}", size), fmt::format("0 to {}", kMaxExtent));
  rules.config.shared_intermediate = size;
  if (size == 0) return;
  rules.config.shared_gate = true;
  rules.shared = "shared_expert.";
  rules.shared_gate = "shared_expert_gate.weight";
}

void add_groups(FamilyRules& rules, const ConfigReader& config) {
  MoeConfig& moe = rules.config;
  const std::int64_t groups = config.integer("n_group", 1);
  if (!config.has("n_group"))
    rules.notes.emplace_back("n_group is missing or null in config.json; taken as 1: no groups");
  if (groups < 1 || moe.experts % groups != 0)
    config.refuse("n_group", fmt::format("{}", groups), fmt::format("a divisor of the {} experts", moe.experts));
  const std::int64_t group_size = moe.experts / groups;
  const std::int64_t top = groups == 1 ? config.integer("topk_group", 1) : config.required({"topk_group"}, 1, groups);
  if (top < 1 || top > groups)
    config.refuse("topk_group", fmt::format("{}", top), fmt::format("1 to n_group {}", groups));
  if (top * group_size < moe.top_k)
    config.refuse(
        "topk_group", fmt::format("{}", top),
        fmt::format("enough groups of {} experts to choose num_experts_per_tok {} from", group_size, moe.top_k));
  moe.routing.groups = groups;
  moe.routing.top_groups = top;
}

void add_scaling(FamilyRules& rules, const ConfigReader& config, double absent) {
  const double factor = config.number("routed_scaling_factor", absent);
  if (!std::isfinite(factor) || factor <= 0.0)
    config.refuse("routed_scaling_factor", fmt::format("{}", factor), "a positive number");
  rules.config.routing.scaling_factor = static_cast<float>(factor);
}

void require_setting(const ConfigReader& config, std::string_view key, std::initializer_list<std::string_view> known) {
  const auto value = config.text(key);
  if (value && std::find(known.begin(), known.end(), *value) == known.end())
    config.refuse(key, in_quotes(*value), fmt::format("{}", fmt::join(known, " or ")));
}

}  // namespace epmoe::checkpoint
