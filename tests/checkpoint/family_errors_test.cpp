#include <cstring>

#include "checkpoint/test_model.hpp"

namespace epmoe::checkpoint {
namespace {

using namespace epmoe::test;

class FamilyErrors : public ::testing::Test {
 protected:
  TempDir dir_;
  TestModel model_ = test_model("qwen3_moe", false);
  void refused(const TestModel& model, const std::vector<std::string>& parts) {
    Catalog catalog;
    expect_error<CheckpointError>([&] { model.describe(dir_.path(), catalog); }, parts);
  }
  /// With one setting changed.
  void refused(const std::string& family, const std::string& key, const nlohmann::json& value,
               const std::vector<std::string>& parts) {
    SCOPED_TRACE(key + " = " + value.dump());
    TestModel model = test_model(family, false);
    model.config[key] = value;
    refused(model, parts);
  }
  void refused_text(const std::string& config, const std::vector<std::string>& parts) {
    model_.write(dir_.path());
    write_file(dir_ / "config.json", config);
    expect_error<CheckpointError>([&] { describe_model(read_config(dir_.path()), Catalog::read(dir_.path())); }, parts);
  }
};

TEST_F(FamilyErrors, UnknownModelTypeListsTheKnown) {
  refused("qwen3_moe", "model_type", "gpt_neo",
          {"config.json", "unknown model_type \"gpt_neo\"",
           "known: deepseek_v2, deepseek_v3, mixtral, olmoe, qwen2_moe, qwen3_moe"});
  refused("qwen3_moe", "model_type", nullptr, {"model_type is missing", "qwen3_moe"});
  refused("qwen3_moe", "model_type", 7, {"model_type", "a string"});
  model_.write(dir_.path());
  expect_error<CheckpointError>(
      [&] { describe_model(read_config(dir_.path()), Catalog::read(dir_.path()), "nonsense"); },
      {"unknown family \"nonsense\"", "known: deepseek_v2"});
}

TEST_F(FamilyErrors, ConfigFileThatCannotBeUsed) {
  expect_error<CheckpointError>([&] { read_config(dir_.path()); }, {"config.json", "No such file"});
  refused_text("{", {"config.json", "not valid JSON"});
  refused_text("[]", {"config.json", "wanted an object"});
  refused_text(R"({"model_type":"qwen3_moe","hidden_size":6,"hidden_size":6})", {"duplicate key \"hidden_size\""});
  refused_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\n", {"config.json", "Git LFS pointer"});
}

TEST_F(FamilyErrors, SettingsThatDoNotFit) {
  const std::string q = "qwen3_moe", v3 = "deepseek_v3", v2 = "deepseek_v2";
  refused(q, "num_experts_per_tok", 9, {"config.json", "num_experts_per_tok is 9", "wanted 1 to 8"});
  refused(q, "num_experts_per_tok", nullptr, {"num_experts_per_tok is missing or null", "1 to 8"});
  refused(q, "num_experts_per_tok", 0, {"num_experts_per_tok is 0"});
  refused(q, "num_experts_per_tok", "2", {"num_experts_per_tok", "an integer"});
  refused(q, "num_experts", nullptr, {"num_experts is missing or null"});
  refused(q, "num_experts", 0, {"num_experts is 0"});
  refused(q, "num_experts", 2000, {"experts is 2000", "1 to 1024"});
  refused(q, "hidden_size", nullptr, {"hidden_size is missing or null"});
  refused(q, "hidden_size", 1e30, {"hidden_size", "an integer"});
  refused(q, "hidden_size", std::uint64_t{1} << 63, {"hidden_size", "an integer"});
  refused(q, "moe_intermediate_size", nullptr, {"moe_intermediate_size is missing or null"});
  refused("mixtral", "intermediate_size", -5, {"intermediate_size is -5"});
  refused(q, "num_hidden_layers", nullptr, {"num_hidden_layers is missing or null"});
  refused(q, "hidden_act", "relu6", {"hidden_act is \"relu6\"", "silu or gelu"});
  refused(q, "hidden_act", "gelu_pytorch_tanh", {"hidden_act is \"gelu_pytorch_tanh\""});
  refused(q, "norm_topk_prob", "yes", {"norm_topk_prob", "true or false"});
  refused(q, "decoder_sparse_step", 0, {"decoder_sparse_step is 0", "at least 1"});
  refused(q, "mlp_only_layers", "0", {"mlp_only_layers", "an array of integers"});
  refused("qwen2_moe", "shared_expert_intermediate_size", -1, {"shared_expert_intermediate_size is -1"});
  refused(v3, "n_group", 3, {"n_group is 3", "a divisor of the 8 experts"});
  refused(v3, "n_group", 0, {"n_group is 0"});
  refused(v3, "n_group", 8, {"n_group is 8", "at most 4", "two best"});
  refused(v3, "topk_group", 5, {"topk_group is 5", "1 to 4"});
  refused(v3, "topk_group", nullptr, {"topk_group is missing or null"});
  refused(v3, "num_experts_per_tok", 5, {"topk_group is 2", "groups of 2 experts", "num_experts_per_tok 5"});
  refused(v3, "scoring_func", "softmax", {"scoring_func is \"softmax\"", "wanted sigmoid"});
  refused(v3, "topk_method", "greedy", {"topk_method is \"greedy\"", "noaux_tc"});
  refused(v3, "routed_scaling_factor", 0, {"routed_scaling_factor is 0"});
  refused(v3, "routed_scaling_factor", "x", {"routed_scaling_factor", "a number"});
  refused(v3, "n_shared_experts", -1, {"n_shared_experts is -1"});
  refused(v3, "first_k_dense_replace", -1, {"first_k_dense_replace is -1"});
  refused(v2, "topk_method", "noaux_tc", {"topk_method is \"noaux_tc\"", "greedy or group_limited_greedy"});
  refused(v2, "scoring_func", "sigmoid", {"scoring_func is \"sigmoid\""});
  refused(v2, "n_group", nullptr, {"n_group is missing or null", "group_limited_greedy"});
  refused(v2, "n_group", 5, {"n_group is 5", "a divisor of the 8 experts"});
}

TEST_F(FamilyErrors, QuantisedCheckpointsAreRefusedByMethod) {
  refused("deepseek_v3", "quantization_config", {{"quant_method", "fp8"}, {"fmt", "e4m3"}},
          {"quantization_config", "quant_method \"fp8\"", "F32, F16 and BF16"});
  refused("qwen3_moe", "quantization_config", {{"bits", 4}}, {"quantization_config", "\"unknown\""});
  refused("qwen3_moe", "compression_config", {{"quant_method", "compressed-tensors"}}, {"\"compressed-tensors\""});
  TestModel model = test_model("qwen3_moe", false);
  model.config["quantization_config"] = nullptr;
  Catalog catalog;
  EXPECT_EQ(model.describe(dir_.path(), catalog).layers.size(), 3U);
}

TEST_F(FamilyErrors, MissingTensors) {
  for (const std::string name : {"model.layers.1.mlp.experts.7.down_proj.weight",
                                 "model.layers.1.mlp.experts.0.gate_proj.weight", "model.layers.2.mlp.gate.weight"}) {
    TestModel model = test_model("qwen3_moe", false);
    model.remove(name);
    refused(model, {"model.safetensors", "tensor \"" + name + "\"", "missing"});
  }
  TestModel fused = test_model("qwen3_moe", true);
  fused.remove("model.layers.0.mlp.experts.gate_up_proj");
  refused(fused, {"tensor \"model.layers.0.mlp.experts.gate_up_proj\"", "missing"});
  TestModel bias = test_model("deepseek_v3", false);
  bias.remove("model.layers.1.mlp.gate.e_score_correction_bias");
  refused(bias, {"e_score_correction_bias", "missing"});
  TestModel shared = test_model("qwen2_moe", false);
  shared.remove("model.layers.0.mlp.shared_expert_gate.weight");
  refused(shared, {"shared_expert_gate.weight", "missing"});
}

TEST_F(FamilyErrors, TensorsWithoutAPlace) {
  TestModel more = test_model("qwen3_moe", false);
  more.config["num_experts"] = 7;
  more.tensor("model.layers.0.mlp.gate.weight").shape = {7, kHidden};
  refused(more, {"model.safetensors", "tensor \"model.layers.0.mlp.experts.7.", "expert 7", "7 experts"});
  const auto extra = [&](const std::string& family, bool fused, const FileTensor& tensor) {
    TestModel model = test_model(family, fused);
    model.tensors.push_back(tensor);
    refused(model, {"tensor \"" + tensor.name + "\"", "no place for it"});
  };
  extra("qwen3_moe", false, {"model.layers.1.mlp.experts.3.gate_proj.weight_scale_inv", {1, 1}});
  extra("qwen3_moe", false, {"model.layers.1.mlp.gate.bias", {8}});
  extra("qwen3_moe", false, {"model.layers.1.mlp.experts.03.x", {8}});
  extra("qwen3_moe", false, {"model.layers.1.mlp.shared_expert.gate_proj.weight", {kShared, kHidden}});
  extra("qwen3_moe", true, {"model.layers.1.mlp.experts.0.gate_proj.weight", {kIntermediate, kHidden}});
  extra("deepseek_v2", true, {"model.layers.1.mlp.gate.e_score_correction_bias", {8}});
}

TEST_F(FamilyErrors, WrongShapesNameTheConfigKeys) {
  const auto reshaped = [&](const std::string& family, bool fused, const std::string& name,
                            std::vector<std::int64_t> shape, const std::vector<std::string>& parts) {
    TestModel model = test_model(family, fused);
    model.tensor(name).shape = std::move(shape);
    refused(model, parts);
  };
  reshaped("qwen3_moe", false, "model.layers.1.mlp.experts.4.up_proj.weight", {kHidden, kIntermediate},
           {"model.safetensors", "tensor \"model.layers.1.mlp.experts.4.up_proj.weight\"", "[6, 5], wanted [5, 6]",
            "moe_intermediate_size, hidden_size"});
  reshaped("mixtral", false, "model.layers.1.block_sparse_moe.experts.4.w2.weight", {7, kIntermediate},
           {"[7, 5], wanted [6, 5]", "intermediate_size"});
  reshaped("qwen3_moe", false, "model.layers.0.mlp.gate.weight", {9, kHidden},
           {"[9, 6], wanted [8, 6]", "experts, hidden_size"});
  reshaped("qwen3_moe", true, "model.layers.0.mlp.experts.gate_up_proj", {kExperts, kHidden, 2 * kIntermediate},
           {"[8, 6, 10], wanted [8, 10, 6]"});
  reshaped("qwen3_moe", true, "model.layers.0.mlp.experts.down_proj", {7, kHidden, kIntermediate},
           {"[7, 6, 5], wanted [8, 6, 5]"});
  reshaped("deepseek_v3", true, "model.layers.2.mlp.gate.e_score_correction_bias", {1, 8}, {"[1, 8], wanted [8]"});
  reshaped("deepseek_v3", true, "model.layers.2.mlp.shared_experts.up_proj.weight", {5, 6}, {"[5, 6], wanted [10, 6]"});
  reshaped("qwen2_moe", true, "model.layers.2.mlp.shared_expert_gate.weight", {6}, {"[6], wanted [1, 6]"});
}

TEST_F(FamilyErrors, DtypesOfLaterFormats) {
  const auto retyped = [&](const std::string& dtype, const std::vector<std::string>& parts) {
    TestModel model = test_model("qwen3_moe", false);
    model.tensor("model.layers.1.mlp.experts.2.down_proj.weight").dtype = dtype;
    refused(model, parts);
  };
  retyped("F8_E4M3", {"tensor \"model.layers.1.mlp.experts.2.down_proj.weight\"",
                      "dtype F8_E4M3, wanted F32, F16 or BF16", "fp8 weights are not supported yet"});
  retyped("I8", {"dtype I8", "int8 weights are not supported yet"});
  retyped("I32", {"dtype I32", "int4 weights are not supported yet"});
  retyped("U8", {"dtype U8", "fp4 weights are not supported yet"});
  retyped("I16", {"dtype I16, wanted F32, F16 or BF16"});
}

TEST_F(FamilyErrors, LayersThatConfigAndTensorsSeeDifferently) {
  TestModel dense = test_model("qwen3_moe", false);
  dense.config["mlp_only_layers"] = {1};
  refused(dense, {"layer 1", "a dense layer", "mlp_only_layers [1]", "expert tensors under model.layers.1.mlp."});
  TestModel first = test_model("deepseek_v3", false);
  first.config["first_k_dense_replace"] = 0;
  refused(first, {"layer 0", "an MoE layer", "first_k_dense_replace 0", "model.layers.0.mlp.gate.weight"});
  TestModel more = test_model("mixtral", false);
  more.config["num_hidden_layers"] = 5;
  refused(more, {"layer 3", "an MoE layer", "model.layers.3.block_sparse_moe.gate.weight"});
  TestModel none = test_model("qwen3_moe", false);
  none.tensors = {{"model.embed_tokens.weight", {3, 3}}};
  refused(none, {"no tensor of an MoE layer", "model.layers.0.mlp.gate.weight", "\"model.embed_tokens.weight\""});
  none.tensors.clear();
  refused(none, {"no tensor of an MoE layer", "found no tensors"});
  TestModel all_dense = test_model("deepseek_v2", false);
  all_dense.config["num_hidden_layers"] = 1;
  refused(all_dense, {"none of the 1 layers", "first_k_dense_replace 1"});
}

TEST_F(FamilyErrors, RouterBiasMustBeFinite) {
  const TestModel model = test_model("deepseek_v3", false);
  Catalog catalog;
  const MoeModel described = model.describe(dir_.path(), catalog);
  const TensorInfo& bias = catalog.at("model.layers.2.mlp.gate.e_score_correction_bias");
  std::string bytes = read_file(dir_ / "model.safetensors");
  for (std::size_t e = 0; e < 8; ++e) {
    const float value = e == 5 ? std::numeric_limits<float>::quiet_NaN() : 0.5F;
    std::memcpy(bytes.data() + bias.begin + 4 * e, &value, 4);
  }
  write_file(dir_ / "model.safetensors", bytes);
  TensorReader reader(catalog);
  expect_error<CheckpointError>([&] { read_correction_bias(reader, described.layers.back()); },
                                {"e_score_correction_bias", "expert 5", "nan", "finite"});
}

}  // namespace
}  // namespace epmoe::checkpoint
