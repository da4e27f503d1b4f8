#include "checkpoint/layer_match.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "checkpoint/text.hpp"

namespace epmoe::checkpoint {
namespace {

/// Where decoder layers are found: plain models, bare models saved without their head, multimodal wrappers.
constexpr std::array<std::string_view, 5> kRoots{"model.", "", "language_model.model.", "model.language_model.",
                                                 "language_model."};

/// What a later format needs, said for the types it is known by.
std::string dtype_refusal(const std::string& dtype) {
  std::string what = fmt::format("dtype {}, wanted F32, F16 or BF16", dtype);
  if (dtype.starts_with("F8_")) return what + " (fp8 weights are not supported yet)";
  if (dtype == "I8") return what + " (int8 weights are not supported yet)";
  if (dtype == "I32") return what + " (packed int4 weights are not supported yet)";
  if (dtype == "U8" || dtype == "F4") return what + " (fp4 weights are not supported yet)";
  return what;
}

/// The number that `text` starts with, up to a dot.
std::optional<std::int64_t> leading_index(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() + text.size() || *end != '.') return std::nullopt;
  return value;
}

}  // namespace

LayerMatcher::LayerMatcher(const FamilyRules& rules, const Catalog& catalog) : rules_(rules), catalog_(catalog) {
  for (const std::string_view root : kRoots) {
    root_ = root;
    for (auto it = catalog.tensors().lower_bound(root_ + "layers."); it != catalog.tensors().end(); ++it) {
      if (!it->first.starts_with(root_ + "layers.")) break;
      const std::string_view rest = std::string_view(it->first).substr(root_.size() + 7);
      const auto dot = rest.find('.');
      if (!leading_index(rest)) continue;
      for (const std::string& block : rules.blocks)
        if (rest.substr(dot + 1).starts_with(block)) return;
    }
  }
  throw CheckpointError(fmt::format("no tensor of an MoE layer found: wanted names like {}layers.0.{}gate.weight, {}",
                                    kRoots.front(), rules.blocks.front(),
                                    catalog.tensors().empty()
                                        ? std::string("found no tensors")
                                        : "found " + in_quotes(catalog.tensors().begin()->first)));
}

bool LayerMatcher::any_below(const std::string& prefix) const {
  const auto found = catalog_.tensors().lower_bound(prefix);
  return found != catalog_.tensors().end() && found->first.starts_with(prefix);
}

/// The block that holds a router or experts.
std::optional<std::string> LayerMatcher::find_block(const std::string& layer_prefix) const {
  for (const std::string& block : rules_.blocks)
    if (any_below(layer_prefix + block + "gate.") || any_below(layer_prefix + block + "experts."))
      return layer_prefix + block;
  return std::nullopt;
}

std::optional<LayerTensors> LayerMatcher::match(std::int64_t layer) const {
  const std::string prefix = fmt::format("{}layers.{}.", root_, layer);
  const auto block = find_block(prefix);
  const bool sparse = rules_.sparse(layer);
  if (!block && !sparse) return std::nullopt;
  if (!block)
    throw CheckpointError(
        fmt::format("layer {}: config.json makes it an MoE layer ({}), but there is no tensor under {}{}gate.weight",
                    layer, rules_.sparse_rule, prefix, rules_.blocks.front()));
  if (!sparse)
    throw CheckpointError(
        fmt::format("layer {}: config.json makes it a dense layer ({}), but there are expert tensors under {}", layer,
                    rules_.sparse_rule, *block));
  LayerTensors tensors;
  tensors.layer = layer;
  tensors.config = rules_.config;
  const std::vector<Expected> expected = expect(*block, tensors);
  for (const Expected& tensor : expected) check(tensor);
  refuse_unmapped(*block, expected);
  return tensors;
}

std::vector<LayerMatcher::Expected> LayerMatcher::expect(const std::string& block, LayerTensors& tensors) const {
  const MoeConfig& moe = rules_.config;
  std::vector<Expected> out;
  tensors.router = block + "gate.weight";
  out.push_back({tensors.router, {moe.experts, moe.hidden}, "experts, hidden_size"});
  if (!rules_.correction_bias.empty()) {
    tensors.correction_bias = block + rules_.correction_bias;
    out.push_back({tensors.correction_bias, {moe.experts}, "experts"});
  }
  expect_experts(block, tensors, out);
  if (!rules_.shared.empty()) {
    tensors.shared_prefix = block + rules_.shared;
    const std::string why = "from config.json's shared expert size and hidden_size";
    out.push_back({tensors.shared_prefix + "gate_proj.weight", {moe.shared_intermediate, moe.hidden}, why});
    out.push_back({tensors.shared_prefix + "up_proj.weight", {moe.shared_intermediate, moe.hidden}, why});
    out.push_back({tensors.shared_prefix + "down_proj.weight", {moe.hidden, moe.shared_intermediate}, why});
  }
  if (!rules_.shared_gate.empty()) {
    tensors.shared_gate = block + rules_.shared_gate;
    out.push_back({tensors.shared_gate, {1, moe.hidden}, "1, hidden_size"});
  }
  return out;
}

void LayerMatcher::expect_experts(const std::string& block, LayerTensors& tensors, std::vector<Expected>& out) const {
  const MoeConfig& moe = rules_.config;
  const std::string experts = block + "experts.";
  if (catalog_.find(experts + "gate_up_proj") != nullptr || catalog_.find(experts + "down_proj") != nullptr) {
    const std::string why = fmt::format("experts, {}, hidden_size", rules_.intermediate_key);
    tensors.fused_gate_up = experts + "gate_up_proj";
    tensors.fused_down = experts + "down_proj";
    out.push_back({tensors.fused_gate_up, {moe.experts, 2 * moe.intermediate, moe.hidden}, why});
    out.push_back({tensors.fused_down, {moe.experts, moe.hidden, moe.intermediate}, why});
    return;
  }
  const ExpertNames* names = &rules_.expert_names.front();
  for (const ExpertNames& candidate : rules_.expert_names) {
    if (catalog_.find(experts + "0." + candidate.gate) == nullptr) continue;
    names = &candidate;
    break;
  }
  tensors.expert_prefix = experts;
  tensors.gate_name = names->gate;
  tensors.up_name = names->up;
  tensors.down_name = names->down;
  const std::string why = fmt::format("{}, hidden_size", rules_.intermediate_key);
  for (std::int64_t e = 0; e < moe.experts; ++e) {
    const std::string prefix = fmt::format("{}{}.", experts, e);
    out.push_back({prefix + names->gate, {moe.intermediate, moe.hidden}, why});
    out.push_back({prefix + names->up, {moe.intermediate, moe.hidden}, why});
    out.push_back({prefix + names->down, {moe.hidden, moe.intermediate}, why});
  }
}

void LayerMatcher::check(const Expected& expected) const {
  const TensorInfo& found = catalog_.at(expected.name);
  const auto& file = catalog_.files()[found.file];
  if (found.shape != expected.shape)
    fail(file, found.name,
         fmt::format("shape {}, wanted {} (config.json: {})", shape_text(found.shape), shape_text(expected.shape),
                     expected.why));
  const auto dtype = dtype_of_name(found.dtype);
  if (!dtype || *dtype == DType::i32) fail(file, found.name, dtype_refusal(found.dtype));
}

void LayerMatcher::refuse_unmapped(const std::string& block, const std::vector<Expected>& expected) const {
  std::unordered_set<std::string_view> mapped;
  for (const Expected& tensor : expected) mapped.insert(tensor.name);
  const std::string experts = block + "experts.";
  for (auto it = catalog_.tensors().lower_bound(block); it != catalog_.tensors().end(); ++it) {
    const std::string& name = it->first;
    if (!name.starts_with(block)) break;
    if (mapped.contains(name)) continue;
    const auto& file = catalog_.files()[it->second.file];
    const auto index =
        name.starts_with(experts) ? leading_index(std::string_view(name).substr(experts.size())) : std::nullopt;
    if (index && *index >= rules_.config.experts)
      fail(file, name,
           fmt::format("belongs to expert {}, but config.json has {} experts", *index, rules_.config.experts));
    fail(file, name,
         "is part of an MoE block, but this model family has no place for it; ignoring it would give wrong results");
  }
}

}  // namespace epmoe::checkpoint
