#include "epmoe/checkpoint/family.hpp"

#include "checkpoint/test_model.hpp"

namespace epmoe::checkpoint {
namespace {

using namespace epmoe::test;
using ::testing::ElementsAre;
using Score = RoutingConfig::Score;
using GroupScore = RoutingConfig::GroupScore;

struct Case {
  std::string family;
  bool fused;
  std::string dtype;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.family << (c.fused ? " fused " : " per expert ") << c.dtype;
}

std::string bytes_at(ConstMatrixView view) {
  return {static_cast<const char*>(view.data), static_cast<std::size_t>(extent_bytes(view))};
}

class FamilyLayout : public ::testing::TestWithParam<Case> {
 protected:
  TempDir dir_;
  Catalog catalog_;
  [[nodiscard]] std::string tensor_bytes(const std::string& name) const {
    const TensorInfo& tensor = catalog_.at(name);
    return read_file(catalog_.files()[tensor.file]).substr(tensor.begin, tensor.end - tensor.begin);
  }
};

TEST_P(FamilyLayout, EveryExpertIsItsOwnBytes) {
  const auto& [family, fused, dtype] = GetParam();
  const MoeModel model = test_model(family, fused, dtype).describe(dir_.path(), catalog_);
  EXPECT_EQ(model.family, family);
  EXPECT_EQ(model.model_type, family);
  EXPECT_EQ(safetensors_name(model.dtype), dtype);
  EXPECT_EQ(model.num_hidden_layers, 3);
  const bool deepseek = family.starts_with("deepseek");
  std::vector<std::int64_t> numbers;
  for (const LayerTensors& layer : model.layers) numbers.push_back(layer.layer);
  EXPECT_EQ(numbers, deepseek ? (std::vector<std::int64_t>{1, 2}) : (std::vector<std::int64_t>{0, 1, 2}));

  for (const LayerTensors& layer : model.layers) {
    TensorReader reader(catalog_);
    EXPECT_EQ(layer.fused(), fused);
    const std::string block = layer.router.substr(0, layer.router.size() - std::string("gate.weight").size());
    EXPECT_EQ(bytes_at(read_router(reader, layer)), tensor_bytes(layer.router));
    const std::uint64_t one_matrix = static_cast<std::uint64_t>(kHidden * kIntermediate * size_bytes(model.dtype));
    for (std::int64_t e = 0; e < kExperts; ++e) {
      const std::uint64_t before = reader.bytes_read();
      const ExpertWeights weights = read_expert(reader, layer, e);
      EXPECT_EQ(reader.bytes_read() - before, 3 * one_matrix);  // this expert's bytes and no others
      EXPECT_EQ(weights.gate.rows, kIntermediate);
      EXPECT_EQ(weights.up.rows, kIntermediate);
      EXPECT_EQ(weights.down.rows, kHidden);
      EXPECT_EQ(weights.gate_bias.rows, 0);
      if (fused) {
        const std::string gate_up = tensor_bytes(block + "experts.gate_up_proj"),
                          down = tensor_bytes(block + "experts.down_proj");
        const auto at = static_cast<std::uint64_t>(e) * one_matrix;
        EXPECT_EQ(bytes_at(weights.gate), gate_up.substr(2 * at, one_matrix));
        EXPECT_EQ(bytes_at(weights.up), gate_up.substr(2 * at + one_matrix, one_matrix));
        EXPECT_EQ(bytes_at(weights.down), down.substr(at, one_matrix));
      } else {
        const std::string prefix = fmt::format("{}experts.{}.", block, e);
        const bool w = family == "mixtral";
        EXPECT_EQ(bytes_at(weights.gate), tensor_bytes(prefix + (w ? "w1.weight" : "gate_proj.weight")));
        EXPECT_EQ(bytes_at(weights.up), tensor_bytes(prefix + (w ? "w3.weight" : "up_proj.weight")));
        EXPECT_EQ(bytes_at(weights.down), tensor_bytes(prefix + (w ? "w2.weight" : "down_proj.weight")));
      }
    }
    expect_error<InputError>([&] { read_expert(reader, layer, kExperts); }, {"expert 8", "0 to 7"});
    expect_error<InputError>([&] { read_expert(reader, layer, -1); }, {"expert -1"});

    const auto shared = read_shared(reader, layer);
    ASSERT_EQ(shared.has_value(), deepseek || family == "qwen2_moe");
    if (shared) {
      const std::string prefix = block + (deepseek ? "shared_experts." : "shared_expert.");
      EXPECT_EQ(bytes_at(shared->gate), tensor_bytes(prefix + "gate_proj.weight"));
      EXPECT_EQ(bytes_at(shared->up), tensor_bytes(prefix + "up_proj.weight"));
      EXPECT_EQ(bytes_at(shared->down), tensor_bytes(prefix + "down_proj.weight"));
      EXPECT_EQ(shared->gate.rows, deepseek ? 2 * kIntermediate : kShared);
    }
    const auto gate = read_shared_gate(reader, layer);
    ASSERT_EQ(gate.has_value(), family == "qwen2_moe");
    if (gate) {
      EXPECT_EQ(bytes_at(*gate), tensor_bytes(block + "shared_expert_gate.weight"));
    }
    EXPECT_EQ(read_correction_bias(reader, layer).size(), family == "deepseek_v3" ? 8U : 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamilyLayout,
                         ::testing::Values(Case{"mixtral", false, "BF16"}, Case{"mixtral", true, "F32"},
                                           Case{"qwen2_moe", false, "F32"}, Case{"qwen2_moe", true, "BF16"},
                                           Case{"qwen3_moe", false, "F16"}, Case{"qwen3_moe", true, "BF16"},
                                           Case{"olmoe", false, "BF16"}, Case{"olmoe", true, "F16"},
                                           Case{"deepseek_v2", false, "BF16"}, Case{"deepseek_v2", true, "BF16"},
                                           Case{"deepseek_v3", false, "BF16"}, Case{"deepseek_v3", true, "F32"}));

class FamilyConfig : public ::testing::Test {
 protected:
  TempDir dir_;
  Catalog catalog_;
  MoeConfig config_of(const TestModel& model) { return model.describe(dir_.path(), catalog_).layers.front().config; }
};

TEST_F(FamilyConfig, EachFamilySaysHowItRoutes) {
  for (const std::string_view family : family_names()) {
    SCOPED_TRACE(family);
    const MoeConfig config = config_of(test_model(std::string(family), false));
    EXPECT_EQ(config.hidden, kHidden);
    EXPECT_EQ(config.intermediate, kIntermediate);
    EXPECT_EQ(config.experts, kExperts);
    EXPECT_EQ(config.top_k, kTopK);
    EXPECT_EQ(config.activation, Activation::silu);
    EXPECT_FALSE(config.router_weight_on_input);
    const bool v2 = family == "deepseek_v2", v3 = family == "deepseek_v3";
    const RoutingConfig& routing = config.routing;
    EXPECT_EQ(routing.score, v3 ? Score::sigmoid : Score::softmax);
    EXPECT_EQ(routing.renormalize, family == "mixtral" || family == "qwen3_moe" || v3);
    EXPECT_EQ(routing.renormalize_epsilon, v3 ? 1e-20F : 0.0F);
    EXPECT_EQ(routing.has_correction_bias, v3);
    EXPECT_EQ(routing.groups, v2 || v3 ? 4 : 1);
    EXPECT_EQ(routing.top_groups, v2 || v3 ? 2 : 1);
    EXPECT_EQ(routing.group_score, v3 ? GroupScore::sum_of_top2 : GroupScore::max);
    EXPECT_EQ(routing.scaling_factor, v2 || v3 ? 2.5F : 1.0F);
    EXPECT_EQ(routing.logits_in_f32, v2 || v3);
    EXPECT_EQ(config.shared_intermediate, v2 || v3 ? 2 * kIntermediate : family == "qwen2_moe" ? kShared : 0);
    EXPECT_EQ(config.shared_gate, family == "qwen2_moe");
  }
}

TEST_F(FamilyConfig, DeepseekV2NeverNormalisesAndSaysSo) {
  TestModel model = test_model("deepseek_v2", false);
  model.config["norm_topk_prob"] = true;
  const MoeModel described = model.describe(dir_.path(), catalog_);
  EXPECT_FALSE(described.layers.front().config.routing.renormalize);
  EXPECT_THAT(described.notes, ElementsAre(::testing::HasSubstr("norm_topk_prob is true; ignored")));
}

TEST_F(FamilyConfig, DeepseekV2GreedyHasNoGroups) {
  TestModel model = test_model("deepseek_v2", false);
  model.config["topk_method"] = "greedy";
  EXPECT_EQ(config_of(model).routing.groups, 1);
  model.config.erase("topk_method");
  model.config["n_group"] = nullptr;
  model.config["topk_group"] = nullptr;
  EXPECT_EQ(config_of(model).routing.groups, 1);
  model.config["n_group"] = 3;  // means nothing here
  EXPECT_EQ(config_of(model).routing.groups, 1);
}

TEST_F(FamilyConfig, MissingOrNullGroupsAreNone) {
  TestModel model = test_model("deepseek_v3", false);
  model.config["n_group"] = nullptr;
  model.config["topk_group"] = nullptr;
  EXPECT_EQ(config_of(model).routing.groups, 1);
  model.config.erase("n_group");
  model.config.erase("topk_group");
  const MoeModel described = model.describe(dir_.path(), catalog_);
  EXPECT_EQ(described.layers.front().config.routing.groups, 1);
  EXPECT_THAT(described.notes, ElementsAre(::testing::HasSubstr("n_group is missing or null")));
}

TEST_F(FamilyConfig, ActivationsByName) {
  TestModel model = test_model("qwen3_moe", false);
  model.config["hidden_act"] = "gelu";
  EXPECT_EQ(config_of(model).activation, Activation::gelu);
  model.config.erase("hidden_act");
  EXPECT_EQ(config_of(model).activation, Activation::silu);
}

TEST_F(FamilyConfig, SparseLayersByStepAndList) {
  TestModel model = test_model("qwen2_moe", false);
  model.config["mlp_only_layers"] = {0};
  std::erase_if(model.tensors, [](const FileTensor& t) { return t.name.starts_with("model.layers.0.mlp."); });
  add_mlp(model, "model.layers.0.mlp.", 99, "BF16");
  MoeModel described = model.describe(dir_.path(), catalog_);
  ASSERT_EQ(described.layers.size(), 2U);
  EXPECT_EQ(described.layers.front().layer, 1);

  model.config["mlp_only_layers"] = nlohmann::json::array();
  model.config["decoder_sparse_step"] = 2;  // layer 1 only
  std::erase_if(model.tensors, [](const FileTensor& t) { return t.name.starts_with("model.layers.2.mlp."); });
  described = model.describe(dir_.path(), catalog_);
  ASSERT_EQ(described.layers.size(), 1U);
  EXPECT_EQ(described.layers.front().layer, 1);
}

TEST_F(FamilyConfig, OtherPlacesForLayersAndSettings) {
  for (const char* root : {"", "language_model.model.", "model.language_model.", "language_model."}) {
    const TestModel plain = test_model("qwen3_moe", true, "BF16", root);
    TestModel nested = plain;
    nested.config = {{"model_type", "some_vision_model"}, {"hidden_size", 4}, {"text_config", plain.config}};
    const MoeModel model = nested.describe(dir_.path(), catalog_);
    EXPECT_EQ(model.family, "qwen3_moe");
    EXPECT_EQ(model.layers.size(), 3U);
    EXPECT_EQ(model.layers[2].router, fmt::format("{}layers.2.mlp.gate.weight", root));
  }
}

TEST_F(FamilyConfig, KeysRenamedBySavingAgain) {
  TestModel model = test_model("qwen3_moe", true);
  model.config.erase("num_experts");
  model.config["num_local_experts"] = kExperts;
  EXPECT_EQ(config_of(model).experts, kExperts);
  model.config["num_experts"] = kExperts + 1;
  expect_error<CheckpointError>([&] { config_of(model); }, {"num_local_experts is 8", "wanted 9 as num_experts says"});
}

TEST_F(FamilyConfig, MixtralUnderOtherNames) {
  TestModel model = test_model("mixtral", false);
  for (FileTensor& tensor : model.tensors)
    for (const auto& [from, to] : {std::pair{".w1.", ".gate_proj."}, {".w3.", ".up_proj."}, {".w2.", ".down_proj."}})
      if (const auto at = tensor.name.find(from); at != std::string::npos) tensor.name.replace(at, 4, to);
  const MoeModel described = model.describe(dir_.path(), catalog_);
  TensorReader reader(catalog_);
  EXPECT_EQ(described.layers.front().gate_name, "gate_proj.weight");
  EXPECT_EQ(read_expert(reader, described.layers.front(), 3).down.rows, kHidden);
}

TEST_F(FamilyConfig, FamilyMayBeGiven) {
  TestModel model = test_model("qwen3_moe", false);
  model.config["model_type"] = "my_own_model";
  model.write(dir_.path());
  const Catalog catalog = Catalog::read(dir_.path());
  const MoeModel described = describe_model(read_config(dir_.path()), catalog, "qwen3_moe");
  EXPECT_EQ(described.family, "qwen3_moe");
  EXPECT_EQ(described.model_type, "my_own_model");
}

}  // namespace
}  // namespace epmoe::checkpoint
