#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epmoe/core/dtype.hpp"

/// The shape of one MoE layer: what a family's config.json says, in one vocabulary.
namespace epmoe {

enum class Activation : std::uint8_t {
  silu,          ///< gated: silu(gate) * up
  gelu,          ///< gated: exact (erf) gelu(gate) * up
  swiglu_oai,    ///< gated: (clamp(up, -7, 7) + 1) * g * sigmoid(1.702 g), g = min(gate, 7); gate and up rows already
                 ///< split
  gelu_tanh,     ///< gated: gelu by its tanh approximation, g / (1 + exp(-2 u)) with u = sqrt(2/pi) (g + 0.044715 g^3)
  relu2,         ///< gated: max(gate, 0)^2 * up
  silu_clamped,  ///< gated: silu(min(gate, 7)) * clamp(up, -7, 7)
  // Not gated: the function of gate alone. Such experts have no up projection.
  silu_no_mul,
  gelu_no_mul,
  gelu_tanh_no_mul,
  relu2_no_mul,
};
/// Whether an expert has an up projection beside the gate.
bool is_gated(Activation activation);
/// All of them, as declared.
std::vector<Activation> activations();
std::string_view name(Activation activation);
std::optional<Activation> parse_activation(std::string_view text);

/// How logits become expert ids and weights. Everything is computed in f32.
struct RoutingConfig {
  enum class Score : std::uint8_t { softmax, sigmoid };
  enum class GroupScore : std::uint8_t { max, sum_of_top2 };
  Score score = Score::softmax;
  bool renormalize = false;          ///< divide the chosen weights by their sum
  float renormalize_epsilon = 0.0F;  ///< added to that sum (1e-20 for DeepSeek-V3)
  bool has_correction_bias = false;  ///< a per-expert bias that selects and never weighs
  std::int64_t groups = 1;           ///< n_group; 1 = ungrouped
  std::int64_t top_groups = 1;       ///< topk_group: groups that may be chosen from
  GroupScore group_score = GroupScore::max;
  float scaling_factor = 1.0F;  ///< routed_scaling_factor, applied to the weights last
  bool logits_in_f32 = false;   ///< router GEMM on f32-widened weights (else: in the checkpoint's dtype)
};

struct MoeConfig {
  std::int64_t hidden = 0;        ///< H
  std::int64_t intermediate = 0;  ///< I of a routed expert
  std::int64_t experts = 0;       ///< E, logical experts of the layer
  std::int64_t top_k = 0;         ///< k
  Activation activation = Activation::silu;
  RoutingConfig routing;
  std::int64_t shared_intermediate = 0;  ///< I of the shared expert(s) taken together; 0 = none
  bool shared_gate = false;              ///< shared output times sigmoid(x . shared_gate)
  bool router_weight_on_input = false;   ///< top-1 only: x *= weight before the experts, nothing at combine

  /// Throws ConfigError naming the field, what was found and what is wanted.
  void validate() const;
};

}  // namespace epmoe
