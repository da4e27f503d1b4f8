#pragma once
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "epmoe/checkpoint/family.hpp"
#include "epmoe/checkpoint/safetensors.hpp"

/// Checkpoints and results made with Hugging Face's own code (tests/data/README.md). Local: every rank loads by itself.
namespace epmoe::test {

struct GoldenCase {
  std::string_view name;    ///< directory in tests/data
  std::int64_t layer;       ///< decoder layer whose MoE block was run
  double weight_tolerance;  ///< relative; what Hugging Face's cast of the weights to 16 bits leaves
  double logit_tolerance;   ///< relative L2 of the router logits
  double output_tolerance;  ///< relative L2 of moe_output when computing in the checkpoint's type
};

/// 1e-6 without a cast; half a unit in the last place with one. 4.57 casts except in DeepSeek, 5.x does so for Qwen
/// only.
inline constexpr std::array<GoldenCase, 14> kGoldenCases{{
    {"mixtral_f32", 0, 1e-6, 1e-5, 1e-5},
    {"mixtral_fused_bf16", 0, 1e-6, 2e-2, 1e-2},
    {"qwen2_moe_f32", 1, 1e-6, 1e-5, 1e-5},
    {"qwen2_moe_bf16", 0, 0x1p-8, 2e-2, 1e-2},
    {"qwen3_moe_f32", 0, 1e-6, 1e-5, 1e-5},
    {"qwen3_moe_f16", 0, 0x1p-11, 2e-2, 1e-2},
    {"qwen3_moe_fused_f32", 0, 1e-6, 1e-5, 1e-5},
    {"qwen3_moe_hidden2048_f32", 0, 1e-6, 1e-5, 1e-5},
    {"qwen3_moe_sharded_bf16", 2, 0x1p-8, 2e-2, 1e-2},
    {"olmoe_bf16", 0, 0x1p-8, 2e-2, 1e-2},
    {"deepseek_v2_greedy_f32", 1, 1e-6, 1e-5, 1e-5},
    {"deepseek_v2_groups_bf16", 1, 1e-6, 1e-5, 1e-2},
    {"deepseek_v3_f32", 1, 1e-6, 1e-5, 1e-5},
    {"deepseek_v3_ungrouped_bf16", 1, 1e-6, 1e-5, 1e-2},
}};

struct Golden {
  GoldenCase about;
  std::filesystem::path directory;
  std::unique_ptr<checkpoint::Catalog> catalog;  ///< of the checkpoint
  checkpoint::MoeModel model;
  checkpoint::LayerTensors layer;
  std::int64_t tokens = 0;
  std::vector<float> hidden_states;    ///< [tokens, hidden]
  std::vector<float> router_logits;    ///< [tokens, experts]
  std::vector<std::int32_t> topk_ids;  ///< [tokens, top_k]
  std::vector<float> topk_weights;     ///< [tokens, top_k]
  std::vector<float> moe_output;       ///< [tokens, hidden]

  [[nodiscard]] const MoeConfig& config() const { return layer.config; }
  [[nodiscard]] ConstMatrixView x() const {
    return const_matrix_view(hidden_states.data(), tokens, layer.config.hidden);
  }
  /// Rows [begin, begin + count) of x: a rank's share.
  [[nodiscard]] ConstMatrixView x(std::int64_t begin, std::int64_t count) const { return x().slice(begin, count); }
};

namespace golden_detail {

template <class T>
std::vector<T> read_values(const checkpoint::Catalog& file, const std::string& name, std::string_view dtype,
                           std::int64_t columns) {
  const checkpoint::TensorInfo& tensor = file.at(name);
  if (tensor.dtype != dtype || tensor.shape.size() != 2 || tensor.shape[1] != columns)
    throw std::runtime_error("golden data: " + name + " is not what tests/data/README.md says");
  std::vector<T> values(static_cast<std::size_t>(tensor.end - tensor.begin) / sizeof(T));
  std::ifstream in(file.files()[tensor.file], std::ios::binary);
  in.seekg(static_cast<std::streamoff>(tensor.begin));
  in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
  if (!in) throw std::runtime_error("golden data: cannot read " + name);
  return values;
}

}  // namespace golden_detail

inline Golden load_golden(const GoldenCase& about) {
  Golden golden;
  golden.about = about;
  golden.directory = std::filesystem::path(EPMOE_TEST_DATA) / about.name;
  golden.catalog = std::make_unique<checkpoint::Catalog>(checkpoint::Catalog::read(golden.directory));
  golden.model = checkpoint::describe_model(checkpoint::read_config(golden.directory), *golden.catalog);
  bool found = false;
  for (const checkpoint::LayerTensors& layer : golden.model.layers)
    if (layer.layer == about.layer) {
      golden.layer = layer;
      found = true;
    }
  if (!found) throw std::runtime_error("golden data: " + std::string(about.name) + " lacks its MoE layer");

  using golden_detail::read_values;
  const auto file = checkpoint::Catalog::read(golden.directory / "golden.safetensors");
  const MoeConfig& config = golden.layer.config;
  golden.hidden_states = read_values<float>(file, "hidden_states", "F32", config.hidden);
  golden.tokens = static_cast<std::int64_t>(golden.hidden_states.size()) / config.hidden;
  golden.router_logits = read_values<float>(file, "router_logits", "F32", config.experts);
  golden.topk_ids = read_values<std::int32_t>(file, "topk_ids", "I32", config.top_k);
  golden.topk_weights = read_values<float>(file, "topk_weights", "F32", config.top_k);
  golden.moe_output = read_values<float>(file, "moe_output", "F32", config.hidden);
  return golden;
}

/// |got − want| / |want|; NaN if anything is.
inline double relative_l2(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) throw std::runtime_error("relative_l2: sizes differ");
  double difference = 0.0, size = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double d = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    difference += d * d;
    size += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  return std::sqrt(difference / size);
}

}  // namespace epmoe::test
