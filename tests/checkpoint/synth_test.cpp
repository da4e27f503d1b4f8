#include "epmoe/checkpoint/synth.hpp"

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>

#include "checkpoint/files.hpp"
#include "epmoe/checkpoint/family.hpp"

namespace epmoe::checkpoint {
namespace {

using namespace epmoe::test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The layout of a real model with small matrices, so that the test stays quick.
ModelShape small(std::string_view name, double scale) {
  ModelShape shape = scaled(find_model(name), scale);
  shape.hidden = 24;
  shape.intermediate = 10;
  if (shape.shared_intermediate > 0) shape.shared_intermediate = shape.shared_gate ? 14 : 10 * shape.shared_count;
  return shape;
}

std::vector<std::string> built_models() {
  std::vector<std::string> names;
  const auto families = family_names();
  for (const ModelShape& model : model_table())
    if (std::find(families.begin(), families.end(), model.family) != families.end()) names.emplace_back(model.name);
  return names;
}

TEST(ModelTable, EveryShapeIsAValidLayer) {
  EXPECT_EQ(model_table().size(), 19U);
  for (const ModelShape& model : model_table()) {
    SCOPED_TRACE(model.name);
    MoeConfig config;
    config.hidden = model.hidden;
    config.intermediate = model.intermediate;
    config.experts = model.experts;
    config.top_k = model.top_k;
    config.routing.groups = model.groups;
    config.routing.top_groups = model.top_groups;
    config.shared_intermediate = model.shared_intermediate;
    config.shared_gate = model.shared_gate;
    EXPECT_NO_THROW(config.validate());
    EXPECT_GT(model.moe_layers, 0);
    EXPECT_EQ(&find_model(model.name), &model);
  }
  EXPECT_EQ(find_model("deepseek-v3").layers(), 61);
  EXPECT_EQ(find_model("llama4-maverick").layers(), 48);
}

TEST(ModelTable, ScaleKeepsModelsValid) {
  for (const ModelShape& model : model_table()) {
    SCOPED_TRACE(model.name);
    for (const double scale : {1e-6, 0.01, 0.1, 0.37, 0.5, 1.0, 1.5}) {
      const ModelShape shape = scaled(model, scale);
      EXPECT_EQ(shape.hidden, model.hidden);
      EXPECT_EQ(shape.intermediate, model.intermediate);
      EXPECT_GE(shape.experts, model.top_k);
      EXPECT_GE(shape.moe_layers, 1);
      EXPECT_EQ(shape.experts % shape.groups, 0);
      EXPECT_GE(shape.experts / shape.groups * shape.top_groups, shape.top_k);
      if (scale == 1.0) {
        EXPECT_EQ(shape.experts, model.experts);
        EXPECT_EQ(shape.moe_layers, model.moe_layers);
      }
    }
  }
  EXPECT_EQ(scaled(find_model("qwen3-30b-a3b"), 0.25).experts, 32);
  EXPECT_EQ(scaled(find_model("qwen3-30b-a3b"), 0.25).moe_layers, 12);
  EXPECT_EQ(scaled(find_model("deepseek-v3"), 0.01).experts, 16);
  for (const double bad : {0.0, -1.0, std::nan(""), 1e9})
    expect_error<ConfigError>([&] { (void)scaled(find_model("mixtral-8x7b"), bad); }, {"scale is", "above 0"});
  expect_error<ConfigError>([&] { (void)scaled(find_model("deepseek-v3"), 100); }, {"experts", "at most 1024"});
}

TEST(Synth, EachModelReadsBackAsWhatItIs) {
  const std::vector<std::string> models = built_models();
  EXPECT_THAT(models, ::testing::UnorderedElementsAre("mixtral-8x7b", "mixtral-8x22b", "qwen1.5-moe-a2.7b",
                                                      "qwen3-30b-a3b", "qwen3-235b-a22b", "deepseek-v2-lite",
                                                      "deepseek-v2", "deepseek-v3", "olmoe-1b-7b"));
  for (const std::string& name : models) {
    for (const bool fused : {false, true}) {
      SCOPED_TRACE(name + (fused ? " fused" : ""));
      const TempDir dir;
      const ModelShape shape = small(name, 0.06);
      SynthOptions options;
      options.fused = fused;
      std::uint64_t last = 0, all = 0;
      synthesize(shape, dir / "model", options, [&](std::uint64_t done, std::uint64_t of) {
        EXPECT_GT(done, last);
        last = done;
        all = of;
      });
      EXPECT_EQ(last, all);
      const Catalog catalog = Catalog::read(dir / "model");
      const MoeModel model = describe_model(read_config(dir / "model"), catalog);
      EXPECT_EQ(model.family, shape.family);
      EXPECT_THAT(model.notes, IsEmpty());
      EXPECT_EQ(model.num_hidden_layers, shape.layers());
      ASSERT_EQ(static_cast<std::int64_t>(model.layers.size()), shape.moe_layers);
      EXPECT_EQ(model.layers.front().layer, shape.dense_layers);
      const LayerTensors& layer = model.layers.back();
      EXPECT_EQ(layer.fused(), fused);
      EXPECT_EQ(layer.config.experts, shape.experts);
      EXPECT_EQ(layer.config.top_k, shape.top_k);
      EXPECT_EQ(layer.config.routing.groups, shape.groups);
      EXPECT_EQ(layer.config.routing.top_groups, shape.top_groups);
      EXPECT_EQ(layer.config.routing.renormalize, shape.renormalize);
      EXPECT_EQ(layer.config.routing.scaling_factor, shape.scaling_factor);
      EXPECT_EQ(layer.config.shared_intermediate, shape.shared_intermediate);
      TensorReader reader(catalog);
      EXPECT_EQ(read_correction_bias(reader, layer).size(),
                shape.family == "deepseek_v3" ? static_cast<std::size_t>(shape.experts) : 0U);
      EXPECT_EQ(read_expert(reader, layer, shape.experts - 1).down.cols, shape.intermediate);
    }
  }
}

TEST(Synth, WeightsHaveVarianceOneOverFanIn) {
  const TempDir dir;
  ModelShape shape = small("qwen3-30b-a3b", 0.01);
  shape.hidden = 400;
  SynthOptions options;
  options.dtype = DType::f32;
  synthesize(shape, dir.path(), options);
  const Catalog catalog = Catalog::read(dir.path());
  const LayerTensors layer = describe_model(read_config(dir.path()), catalog).layers.front();
  TensorReader reader(catalog);
  const ConstMatrixView router = read_router(reader, layer);
  double sum = 0, squares = 0;
  std::vector<float> row(400);
  for (std::int64_t r = 0; r < router.rows; ++r) {
    read_row(router, r, row.data());
    for (const float x : row) {
      sum += x;
      squares += double{x} * x;
    }
  }
  const double count = static_cast<double>(router.rows) * 400;
  EXPECT_NEAR(sum / count, 0.0, 4.0 / std::sqrt(count * 400));
  EXPECT_NEAR(squares / count * 400, 1.0, 0.1);
}

TEST(Synth, ValuesDependOnSeedAndNameOnly) {
  const TempDir dir;
  const ModelShape one_layer = small("olmoe-1b-7b", 0.01);
  ModelShape two_layers = one_layer;
  two_layers.moe_layers = 2;
  SynthOptions options;
  synthesize(one_layer, dir / "a", options);
  synthesize(one_layer, dir / "b", options);
  EXPECT_EQ(read_file(dir / "a/model.safetensors"), read_file(dir / "b/model.safetensors"));
  EXPECT_EQ(read_file(dir / "a/config.json"), read_file(dir / "b/config.json"));
  options.seed = 1;
  synthesize(one_layer, dir / "c", options);
  EXPECT_NE(read_file(dir / "a/model.safetensors"), read_file(dir / "c/model.safetensors"));

  options.seed = 0;
  options.max_shard_bytes = 3000;
  synthesize(two_layers, dir / "d", options);
  const Catalog a = Catalog::read(dir / "a"), d = Catalog::read(dir / "d");
  TensorReader read_a(a), read_d(d);
  for (const auto& [name, info] : a.tensors()) {
    const auto left = read_a.bytes(name), right = read_d.bytes(name);
    EXPECT_TRUE(std::equal(left.begin(), left.end(), right.begin(), right.end())) << name;
  }
  // Two tensors of one model differ.
  const auto gate = read_a.bytes("model.layers.0.mlp.experts.0.gate_proj.weight"),
             up = read_a.bytes("model.layers.0.mlp.experts.0.up_proj.weight");
  EXPECT_FALSE(std::equal(gate.begin(), gate.end(), up.begin(), up.end()));
}

TEST(Synth, ShardsStayUnderTheLimit) {
  const TempDir dir;
  const ModelShape shape = small("mixtral-8x7b", 0.1);  // 3 layers; an expert's matrix has 480 bytes
  SynthOptions options;
  options.max_shard_bytes = 2000;
  synthesize(shape, dir.path(), options);
  const Catalog catalog = Catalog::read(dir.path());
  EXPECT_GT(catalog.files().size(), 3U);
  EXPECT_THAT(catalog.notes(), IsEmpty());
  for (const std::string& name : dir.names()) EXPECT_THAT(name, ::testing::Not(HasSubstr("tmp")));
  std::vector<std::uint64_t> bytes(catalog.files().size());
  for (const auto& [name, info] : catalog.tensors()) bytes[info.file] += info.end - info.begin;
  for (const std::uint64_t shard : bytes) EXPECT_LE(shard, 2000U);
  EXPECT_EQ(static_cast<std::int64_t>(describe_model(read_config(dir.path()), catalog).layers.size()),
            shape.moe_layers);
  options.max_shard_bytes = 1;  // every tensor is larger: one shard each
  synthesize(shape, dir / "sub", options);
  EXPECT_EQ(Catalog::read(dir / "sub").files().size(), Catalog::read(dir / "sub").tensors().size());
}

TEST(Synth, RefusalsSayWhatIsThere) {
  const TempDir dir;
  const auto call = [&](const char* name, double scale, DType dtype) {
    return [&, name, scale, dtype] { synthesize(name, dir / "out", scale, dtype, 0); };
  };
  expect_error<ConfigError>(call("gpt-9", 1, DType::bf16),
                            {"unknown model \"gpt-9\"", "known: deepseek-v2, ", "qwen3-30b-a3b", "qwen3-next-80b-a3b"});
  expect_error<ConfigError>(call("gpt-oss-20b", 1, DType::bf16),
                            {"model gpt-oss-20b", "gpt_oss is not supported yet", "deepseek_v3, mixtral"});
  expect_error<ConfigError>(call("mixtral-8x7b", -1, DType::bf16), {"scale is -1"});
  expect_error<ConfigError>(call("mixtral-8x7b", 0.01, DType::i8), {"dtype is i8", "f32, f16 or bf16"});
  EXPECT_THAT(dir.names(), IsEmpty());
  write_file(dir / "config.json", "{}");
  expect_error<CheckpointError>([&] { synthesize(small("olmoe-1b-7b", 0.01), dir.path(), {}); },
                                {"already holds a checkpoint (config.json)"});
  expect_error<CheckpointError>([&] { synthesize(small("olmoe-1b-7b", 0.01), dir / "config.json", {}); },
                                {"config.json", "cannot make the directory"});
  EXPECT_THAT(dir.names(), ElementsAre("config.json"));
}

TEST(Synth, FailureHalfWayLeavesNothing) {
  const TempDir dir;
  ModelShape shape = small("olmoe-1b-7b", 0.01);
  shape.hidden = 4096;
  SynthOptions options;
  options.max_shard_bytes = 700'000;  // several whole shards, then one over the limit below
  options.fused = true;
  struct rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit low = old;
  low.rlim_cur = 500'000;
  ::setrlimit(RLIMIT_FSIZE, &low);
  expect_error<CheckpointError>([&] { synthesize(shape, dir / "out", options); }, {"model-0000", "cannot write"});
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(dir.names(), IsEmpty());
}

}  // namespace
}  // namespace epmoe::checkpoint
