#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epmoe/checkpoint/safetensors.hpp"
#include "epmoe/core/moe_config.hpp"
#include "epmoe/quantize/expert_weights.hpp"

/// Model families: config.json → MoeConfig, tensor names → experts. One file per family in src/checkpoint/families.
namespace epmoe::checkpoint {

/// Where one MoE layer's tensors are. A plain description: reading is TensorReader's job.
struct LayerTensors {
  std::int64_t layer = 0;
  MoeConfig config;
  std::string router;           ///< [E, H]
  std::string correction_bias;  ///< [E] or empty
  /// Per-expert layout: prefix of expert e is `expert_prefix` + e + "."; names of the three matrices follow.
  std::string expert_prefix;
  std::string gate_name, up_name, down_name;  ///< "gate_proj.weight", … ; per-expert layout
  /// Fused layout: `gate_up` [E, 2I, H] with gate first, `down` [E, H, I]; empty when per expert.
  std::string fused_gate_up, fused_down;
  std::string shared_prefix;  ///< "….shared_expert." or empty; gate_proj, up_proj, down_proj follow
  std::string shared_gate;    ///< [1, H] or empty
  [[nodiscard]] bool fused() const { return !fused_gate_up.empty(); }
};

/// A whole model as far as MoE is concerned.
struct MoeModel {
  std::string model_type;
  std::string family;
  std::int64_t num_hidden_layers = 0;
  std::vector<LayerTensors> layers;  ///< MoE layers, ascending
  DType dtype = DType::bf16;         ///< of the expert weights
  std::vector<std::string> notes;    ///< what a user should know, one line each (a setting that is ignored, …)
};

/// Reads config.json's text and the catalog. Throws CheckpointError: unknown model_type (lists the known), a config
/// that does not fit itself or the tensors (field or tensor, found, wanted), a missing or extra expert tensor, wrong
/// shape or dtype. Only headers are looked at. `family` overrides model_type when not empty.
MoeModel describe_model(const std::string& config_json, const Catalog& catalog, const std::string& family = {});
/// Text of `dir`/config.json. CheckpointError naming the file.
std::string read_config(const std::filesystem::path& dir);
/// Names that describe_model knows.
std::vector<std::string_view> family_names();

/// One expert's weights, as views into the reader's map. Counts only this expert's bytes.
ExpertWeights read_expert(TensorReader& reader, const LayerTensors& layer, std::int64_t expert);
ConstMatrixView read_router(TensorReader& reader, const LayerTensors& layer);
/// [E] as f32, empty if the layer has none; a value that is not finite is a CheckpointError.
std::vector<float> read_correction_bias(TensorReader& reader, const LayerTensors& layer);
std::optional<ExpertWeights> read_shared(TensorReader& reader, const LayerTensors& layer);
std::optional<ConstMatrixView> read_shared_gate(TensorReader& reader, const LayerTensors& layer);

}  // namespace epmoe::checkpoint
