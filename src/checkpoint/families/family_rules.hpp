#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config_reader.hpp"
#include "epmoe/core/moe_config.hpp"

/// What sets a model family apart, as data: its config keys become a MoeConfig, its tensor names become rules that
/// describe_model matches with the tensors present. To add a family: one file here, one line in families.cpp.
namespace epmoe::checkpoint {

/// Names of an expert's matrices in the per-expert layout.
struct ExpertNames {
  std::string gate, up, down;
};

struct FamilyRules {
  MoeConfig config;  ///< of every MoE layer
  std::int64_t num_hidden_layers = 0;
  std::function<bool(std::int64_t layer)> sparse;  ///< whether config.json makes this layer an MoE layer
  std::string sparse_rule;                         ///< that rule in words, for messages
  /// Below "layers.{L}.": the first block that has tensors is used.
  std::vector<std::string> blocks{"mlp."};
  std::vector<ExpertNames> expert_names{{"gate_proj.weight", "up_proj.weight", "down_proj.weight"}};
  // Below the block; empty: none.
  std::string correction_bias;
  std::string shared;  ///< with its dot
  std::string shared_gate;
  std::string intermediate_key;  ///< config key of I, for messages
  std::vector<std::string> notes;
};

struct Family {
  std::string_view model_type;
  FamilyRules (*rules)(const ConfigReader& config);
};
/// All families, by name.
std::span<const Family> families();

FamilyRules mixtral(const ConfigReader& config);
FamilyRules qwen2_moe(const ConfigReader& config);
FamilyRules qwen3_moe(const ConfigReader& config);
FamilyRules olmoe(const ConfigReader& config);
FamilyRules deepseek_v2(const ConfigReader& config);
FamilyRules deepseek_v3(const ConfigReader& config);

// Pieces that several families share.

/// H, I (from `intermediate_key`), E, k, activation, layer count; all layers MoE.
FamilyRules common_rules(const ConfigReader& config, std::string_view experts_key, std::string_view intermediate_key);
/// (L + 1) % decoder_sparse_step == 0 and L not in mlp_only_layers.
void add_sparse_step(FamilyRules& rules, const ConfigReader& config);
/// L >= first_k_dense_replace.
void add_first_dense(FamilyRules& rules, const ConfigReader& config, std::int64_t absent);
/// n_shared_experts × moe_intermediate_size under shared_experts.
void add_shared_experts(FamilyRules& rules, const ConfigReader& config);
/// shared_expert_intermediate_size, with its sigmoid gate.
void add_gated_shared_expert(FamilyRules& rules, const ConfigReader& config);
/// n_group and topk_group; null or missing n_group is 1. Refuses what cannot hold top_k experts.
void add_groups(FamilyRules& rules, const ConfigReader& config);
/// routed_scaling_factor.
void add_scaling(FamilyRules& rules, const ConfigReader& config, double absent);
/// An error unless `key` is absent or one of `known`.
void require_setting(const ConfigReader& config, std::string_view key, std::initializer_list<std::string_view> known);

}  // namespace epmoe::checkpoint
