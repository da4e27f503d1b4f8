#include "epmoe/checkpoint/model_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "checkpoint/text.hpp"
#include "epmoe/core/error.hpp"

namespace epmoe::checkpoint {
namespace {

// clang-format off
constexpr std::array<ModelShape, 19> kModels{{
    {.name = "deepseek-v2", .family = "deepseek_v2", .hidden = 5120, .intermediate = 1536, .experts = 160, .top_k = 6,
     .moe_layers = 59, .dense_layers = 1, .dense_intermediate = 12288, .shared_count = 2, .shared_intermediate = 3072,
     .groups = 8, .top_groups = 3, .scaling_factor = 16.0F},
    {.name = "deepseek-v2-lite", .family = "deepseek_v2", .hidden = 2048, .intermediate = 1408, .experts = 64, .top_k = 6,
     .moe_layers = 26, .dense_layers = 1, .dense_intermediate = 10944, .shared_count = 2, .shared_intermediate = 2816},
    {.name = "deepseek-v3", .family = "deepseek_v3", .hidden = 7168, .intermediate = 2048, .experts = 256, .top_k = 8,
     .moe_layers = 58, .dense_layers = 3, .dense_intermediate = 18432, .shared_count = 1, .shared_intermediate = 2048,
     .groups = 8, .top_groups = 4, .renormalize = true, .scaling_factor = 2.5F},
    {.name = "glm-4.5", .family = "glm4_moe", .hidden = 5120, .intermediate = 1536, .experts = 160, .top_k = 8,
     .moe_layers = 89, .dense_layers = 3, .dense_intermediate = 12288, .shared_count = 1, .shared_intermediate = 1536,
     .renormalize = true, .scaling_factor = 2.5F},
    {.name = "glm-4.5-air", .family = "glm4_moe", .hidden = 4096, .intermediate = 1408, .experts = 128, .top_k = 8,
     .moe_layers = 45, .dense_layers = 1, .dense_intermediate = 10944, .shared_count = 1, .shared_intermediate = 1408,
     .renormalize = true},
    {.name = "gpt-oss-120b", .family = "gpt_oss", .hidden = 2880, .intermediate = 2880, .experts = 128, .top_k = 4,
     .moe_layers = 36, .renormalize = true},
    {.name = "gpt-oss-20b", .family = "gpt_oss", .hidden = 2880, .intermediate = 2880, .experts = 32, .top_k = 4,
     .moe_layers = 24, .renormalize = true},
    {.name = "granite-3.0-1b-a400m", .family = "granitemoe", .hidden = 1024, .intermediate = 512, .experts = 32, .top_k = 8,
     .moe_layers = 24, .renormalize = true},
    {.name = "kimi-k2", .family = "kimi_k2", .hidden = 7168, .intermediate = 2048, .experts = 384, .top_k = 8,
     .moe_layers = 60, .dense_layers = 1, .dense_intermediate = 18432, .shared_count = 1, .shared_intermediate = 2048,
     .renormalize = true, .scaling_factor = 2.827F},
    {.name = "llama4-maverick", .family = "llama4_text", .hidden = 5120, .intermediate = 8192, .experts = 128, .top_k = 1,
     .moe_layers = 24, .layer_step = 2, .dense_intermediate = 16384, .shared_count = 1, .shared_intermediate = 8192},
    {.name = "llama4-scout", .family = "llama4_text", .hidden = 5120, .intermediate = 8192, .experts = 16, .top_k = 1,
     .moe_layers = 48, .shared_count = 1, .shared_intermediate = 8192},
    {.name = "mixtral-8x22b", .family = "mixtral", .hidden = 6144, .intermediate = 16384, .experts = 8, .top_k = 2,
     .moe_layers = 56, .renormalize = true},
    {.name = "mixtral-8x7b", .family = "mixtral", .hidden = 4096, .intermediate = 14336, .experts = 8, .top_k = 2,
     .moe_layers = 32, .renormalize = true},
    {.name = "olmoe-1b-7b", .family = "olmoe", .hidden = 2048, .intermediate = 1024, .experts = 64, .top_k = 8,
     .moe_layers = 16},
    {.name = "phi-3.5-moe", .family = "phimoe", .hidden = 4096, .intermediate = 6400, .experts = 16, .top_k = 2,
     .moe_layers = 32},
    {.name = "qwen1.5-moe-a2.7b", .family = "qwen2_moe", .hidden = 2048, .intermediate = 1408, .experts = 60, .top_k = 4,
     .moe_layers = 24, .dense_intermediate = 5632, .shared_count = 1, .shared_intermediate = 5632, .shared_gate = true},
    {.name = "qwen3-235b-a22b", .family = "qwen3_moe", .hidden = 4096, .intermediate = 1536, .experts = 128, .top_k = 8,
     .moe_layers = 94, .dense_intermediate = 12288, .renormalize = true},
    {.name = "qwen3-30b-a3b", .family = "qwen3_moe", .hidden = 2048, .intermediate = 768, .experts = 128, .top_k = 8,
     .moe_layers = 48, .dense_intermediate = 6144, .renormalize = true},
    {.name = "qwen3-next-80b-a3b", .family = "qwen3_next", .hidden = 2048, .intermediate = 512, .experts = 512, .top_k = 10,
     .moe_layers = 48, .shared_count = 1, .shared_intermediate = 512, .shared_gate = true, .renormalize = true},
}};
// clang-format on

std::int64_t times(std::int64_t count, double scale, std::int64_t least) {
  return std::max(least, static_cast<std::int64_t>(std::llround(static_cast<double>(count) * scale)));
}

}  // namespace

std::span<const ModelShape> model_table() {
  return kModels;
}

const ModelShape& find_model(std::string_view name) {
  std::vector<std::string> known;
  for (const ModelShape& model : kModels) {
    if (model.name == name) return model;
    known.emplace_back(model.name);
  }
  throw ConfigError(fmt::format("unknown model {}; known: {}", in_quotes(name), list_text(known, known.size())));
}

ModelShape scaled(const ModelShape& shape, double scale) {
  constexpr double kMaxScale = 1000.0;
  if (!(scale > 0.0 && scale <= kMaxScale))
    throw ConfigError(fmt::format("scale is {}, wanted a number above 0 and at most {}", scale, kMaxScale));
  ModelShape out = shape;
  out.moe_layers = times(shape.moe_layers, scale, 1);
  out.experts = times(shape.experts, scale, shape.top_k);
  if (shape.groups > 1) {
    // A group scores by its two best, and the groups that remain must hold top_k.
    const std::int64_t least = std::max<std::int64_t>(2, (shape.top_k + shape.top_groups - 1) / shape.top_groups);
    const std::int64_t group_size = std::max(least, (out.experts + shape.groups - 1) / shape.groups);
    out.experts = group_size * shape.groups;
  }
  constexpr std::int64_t kMaxExperts = 1024;
  if (out.experts > kMaxExperts)
    throw ConfigError(
        fmt::format("scale {} gives {} {} experts, wanted at most {}", scale, shape.name, out.experts, kMaxExperts));
  return out;
}

}  // namespace epmoe::checkpoint
