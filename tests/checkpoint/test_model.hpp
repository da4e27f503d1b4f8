#pragma once
#include <nlohmann/json.hpp>

#include "checkpoint/files.hpp"
#include "epmoe/checkpoint/family.hpp"

/// A small checkpoint of each family, as data that a test can bend before it is written.
namespace epmoe::test {

struct TestModel {
  nlohmann::json config;
  std::vector<FileTensor> tensors;

  void write(const std::filesystem::path& dir) const {
    write_file(dir / "config.json", config.dump());
    write_file(dir / "model.safetensors", safetensors(tensors));
  }
  checkpoint::MoeModel describe(const std::filesystem::path& dir, checkpoint::Catalog& catalog) const {
    write(dir);
    catalog = checkpoint::Catalog::read(dir);
    return checkpoint::describe_model(checkpoint::read_config(dir), catalog);
  }
  FileTensor& tensor(const std::string& name) {
    for (FileTensor& t : tensors)
      if (t.name == name) return t;
    throw std::runtime_error("the test has no tensor " + name);
  }
  void remove(const std::string& name) {
    const auto before = tensors.size();
    std::erase_if(tensors, [&](const FileTensor& t) { return t.name == name; });
    if (tensors.size() == before) throw std::runtime_error("the test has no tensor " + name);
  }
};

// Every extent differs from every other, so that a swapped pair shows.
inline constexpr std::int64_t kHidden = 6, kIntermediate = 5, kExperts = 8, kTopK = 2, kShared = 7;

struct BlockNames {
  std::string prefix;  // "model.layers.1.mlp."
  std::string gate = "gate_proj.weight", up = "up_proj.weight", down = "down_proj.weight";
};
inline void add_experts(TestModel& model, const BlockNames& names, bool fused, const std::string& dtype) {
  const std::string experts = names.prefix + "experts.";
  if (fused) {
    model.tensors.push_back({experts + "gate_up_proj", {kExperts, 2 * kIntermediate, kHidden}, dtype});
    model.tensors.push_back({experts + "down_proj", {kExperts, kHidden, kIntermediate}, dtype});
    return;
  }
  for (std::int64_t e = 0; e < kExperts; ++e) {
    const std::string expert = fmt::format("{}{}.", experts, e);
    model.tensors.push_back({expert + names.gate, {kIntermediate, kHidden}, dtype});
    model.tensors.push_back({expert + names.up, {kIntermediate, kHidden}, dtype});
    model.tensors.push_back({expert + names.down, {kHidden, kIntermediate}, dtype});
  }
}
inline void add_mlp(TestModel& model, const std::string& prefix, std::int64_t intermediate, const std::string& dtype) {
  model.tensors.push_back({prefix + "gate_proj.weight", {intermediate, kHidden}, dtype});
  model.tensors.push_back({prefix + "up_proj.weight", {intermediate, kHidden}, dtype});
  model.tensors.push_back({prefix + "down_proj.weight", {kHidden, intermediate}, dtype});
}

/// Three layers; deepseek_*: the first is dense; the others: all are MoE layers. V3 has an MTP layer at the end.
inline TestModel test_model(const std::string& family, bool fused, const std::string& dtype = "BF16",
                            const std::string& root = "model.") {
  TestModel model;
  const bool deepseek = family.starts_with("deepseek");
  auto& config = model.config;
  config = {{"model_type", family},
            {"hidden_size", kHidden},
            {"num_hidden_layers", 3},
            {"num_experts_per_tok", kTopK},
            {"hidden_act", "silu"}};
  config[family == "mixtral" ? "num_local_experts" : deepseek ? "n_routed_experts" : "num_experts"] = kExperts;
  if (family == "mixtral" || family == "olmoe") {
    config["intermediate_size"] = kIntermediate;
  } else {
    config["moe_intermediate_size"] = kIntermediate;
    config["intermediate_size"] = 99;  // of dense layers
  }
  if (family == "olmoe" || family.starts_with("qwen")) config["norm_topk_prob"] = family == "qwen3_moe";
  if (family == "qwen2_moe") config["shared_expert_intermediate_size"] = kShared;
  if (deepseek) {
    config["first_k_dense_replace"] = 1;
    config["n_shared_experts"] = 2;
    config["routed_scaling_factor"] = 2.5;
    config["n_group"] = 4;
    config["topk_group"] = 2;
    config["topk_method"] = family == "deepseek_v2" ? "group_limited_greedy" : "noaux_tc";
    config["scoring_func"] = family == "deepseek_v2" ? "softmax" : "sigmoid";
    config["norm_topk_prob"] = family == "deepseek_v3";
    add_mlp(model, root + "layers.0.mlp.", 99, dtype);
  }
  const std::int64_t layers = family == "deepseek_v3" ? 4 : 3;  // the last is multi-token prediction
  for (std::int64_t layer = deepseek ? 1 : 0; layer < layers; ++layer) {
    BlockNames names{
        fmt::format("{}layers.{}.{}", root, layer, family == "mixtral" && !fused ? "block_sparse_moe." : "mlp.")};
    if (family == "mixtral") {
      names.gate = "w1.weight";
      names.up = "w3.weight";
      names.down = "w2.weight";
    }
    model.tensors.push_back({fmt::format("{}layers.{}.self_attn.q_proj.weight", root, layer), {3, 3}, dtype});
    model.tensors.push_back({names.prefix + "gate.weight", {kExperts, kHidden}, dtype});
    add_experts(model, names, fused, dtype);
    if (family == "deepseek_v3")
      model.tensors.push_back({names.prefix + "gate.e_score_correction_bias", {kExperts}, "F32"});
    if (deepseek) add_mlp(model, names.prefix + "shared_experts.", 2 * kIntermediate, dtype);
    if (family == "qwen2_moe") {
      add_mlp(model, names.prefix + "shared_expert.", kShared, dtype);
      model.tensors.push_back({names.prefix + "shared_expert_gate.weight", {1, kHidden}, dtype});
    }
  }
  return model;
}

}  // namespace epmoe::test
