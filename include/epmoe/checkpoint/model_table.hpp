#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "epmoe/core/moe_config.hpp"

/// Shapes of well-known models by name, for synthetic checkpoints, benchmarks and planning.
namespace epmoe::checkpoint {

struct ModelShape {
  std::string_view name;    ///< "qwen3-30b-a3b"
  std::string_view family;  ///< model_type of its config.json
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;  ///< of a routed expert
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  std::int64_t moe_layers = 0;
  std::int64_t dense_layers = 0;         ///< before the first MoE layer
  std::int64_t layer_step = 1;           ///< every layer_step-th of the others is an MoE layer
  std::int64_t dense_intermediate = 0;   ///< of those dense layers; 0 where no config key asks for it
  std::int64_t shared_count = 0;         ///< shared experts
  std::int64_t shared_intermediate = 0;  ///< of all shared experts together
  bool shared_gate = false;
  std::int64_t groups = 1;
  std::int64_t top_groups = 1;
  bool renormalize = false;
  float scaling_factor = 1.0F;
  /// Layers in all.
  [[nodiscard]] std::int64_t layers() const { return dense_layers + moe_layers * layer_step; }
};

/// All models, by name.
std::span<const ModelShape> model_table();
/// ConfigError listing the known names.
const ModelShape& find_model(std::string_view name);
/// Layers and experts times `scale`, rounded, at least one layer and top_k experts; experts are rounded up to what the
/// groups need. H and I stay. ConfigError unless scale is a positive number and the result has at most 1024 experts.
ModelShape scaled(const ModelShape& shape, double scale);

}  // namespace epmoe::checkpoint
