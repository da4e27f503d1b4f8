#include "checkpoint/synth_layout.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace epmoe::checkpoint {
namespace {

bool is_mixtral(const ModelShape& shape) {
  return shape.family == "mixtral";
}
bool is_deepseek(const ModelShape& shape) {
  return shape.family == "deepseek_v2" || shape.family == "deepseek_v3";
}

void add_experts(std::vector<TensorSpec>& out, const ModelShape& shape, const std::string& block,
                 const SynthOptions& options) {
  const std::int64_t hidden = shape.hidden, inner = shape.intermediate;
  if (options.fused) {
    out.push_back({block + "experts.gate_up_proj", options.dtype, {shape.experts, 2 * inner, hidden}});
    out.push_back({block + "experts.down_proj", options.dtype, {shape.experts, hidden, inner}});
    return;
  }
  const bool w = is_mixtral(shape);
  for (std::int64_t e = 0; e < shape.experts; ++e) {
    const std::string prefix = fmt::format("{}experts.{}.", block, e);
    out.push_back({prefix + (w ? "w1.weight" : "gate_proj.weight"), options.dtype, {inner, hidden}});
    out.push_back({prefix + (w ? "w3.weight" : "up_proj.weight"), options.dtype, {inner, hidden}});
    out.push_back({prefix + (w ? "w2.weight" : "down_proj.weight"), options.dtype, {hidden, inner}});
  }
}

void add_shared(std::vector<TensorSpec>& out, const ModelShape& shape, const std::string& block, DType dtype) {
  if (shape.shared_intermediate == 0) return;
  const std::string prefix = block + (is_deepseek(shape) ? "shared_experts." : "shared_expert.");
  out.push_back({prefix + "gate_proj.weight", dtype, {shape.shared_intermediate, shape.hidden}});
  out.push_back({prefix + "up_proj.weight", dtype, {shape.shared_intermediate, shape.hidden}});
  out.push_back({prefix + "down_proj.weight", dtype, {shape.hidden, shape.shared_intermediate}});
  if (shape.shared_gate) out.push_back({block + "shared_expert_gate.weight", dtype, {1, shape.hidden}});
}

}  // namespace

std::string synth_config(const ModelShape& shape, DType dtype) {
  nlohmann::ordered_json config;
  config["model_type"] = shape.family;
  config["hidden_act"] = "silu";
  config["hidden_size"] = shape.hidden;
  config["num_hidden_layers"] = shape.layers();
  config["num_experts_per_tok"] = shape.top_k;
  config["torch_dtype"] = dtype == DType::f32 ? "float32" : dtype == DType::f16 ? "float16" : "bfloat16";
  config[is_mixtral(shape)    ? "num_local_experts"
         : is_deepseek(shape) ? "n_routed_experts"
                              : "num_experts"] = shape.experts;
  if (is_mixtral(shape) || shape.family == "olmoe") {
    config["intermediate_size"] = shape.intermediate;
  } else {
    config["intermediate_size"] = shape.dense_intermediate;
    config["moe_intermediate_size"] = shape.intermediate;
  }
  if (!is_mixtral(shape)) config["norm_topk_prob"] = shape.renormalize;
  if (shape.family == "qwen2_moe" || shape.family == "qwen3_moe") {
    config["decoder_sparse_step"] = shape.layer_step;
    config["mlp_only_layers"] = nlohmann::json::array();
  }
  if (shape.family == "qwen2_moe") config["shared_expert_intermediate_size"] = shape.shared_intermediate;
  if (is_deepseek(shape)) {
    const bool v3 = shape.family == "deepseek_v3";
    config["first_k_dense_replace"] = shape.dense_layers;
    config["moe_layer_freq"] = 1;
    config["n_shared_experts"] = shape.shared_count;
    config["n_group"] = shape.groups;
    config["topk_group"] = shape.top_groups;
    config["routed_scaling_factor"] = shape.scaling_factor;
    config["scoring_func"] = v3 ? "sigmoid" : "softmax";
    config["topk_method"] = v3 ? "noaux_tc" : shape.groups > 1 ? "group_limited_greedy" : "greedy";
  }
  return config.dump(2) + "\n";
}

std::vector<TensorSpec> synth_tensors(const ModelShape& shape, const SynthOptions& options) {
  std::vector<TensorSpec> out;
  for (std::int64_t i = 0; i < shape.moe_layers; ++i) {
    const std::int64_t layer = shape.dense_layers + (i + 1) * shape.layer_step - 1;
    const bool old_names = is_mixtral(shape) && !options.fused;
    const std::string block = fmt::format("model.layers.{}.{}", layer, old_names ? "block_sparse_moe." : "mlp.");
    out.push_back({block + "gate.weight", options.dtype, {shape.experts, shape.hidden}});
    if (shape.family == "deepseek_v3")
      out.push_back({block + "gate.e_score_correction_bias", DType::f32, {shape.experts}});
    add_experts(out, shape, block, options);
    add_shared(out, shape, block, options.dtype);
  }
  return out;
}

}  // namespace epmoe::checkpoint
