#include <fmt/format.h>
#include <fmt/ranges.h>

#include "checkpoint/config_reader.hpp"
#include "checkpoint/families/family_rules.hpp"
#include "checkpoint/layer_match.hpp"
#include "checkpoint/text.hpp"
#include "epmoe/checkpoint/family.hpp"

namespace epmoe::checkpoint {
namespace {

const Family& pick_family(const ConfigReader& config, const std::string& wanted) {
  const std::vector<std::string> types = wanted.empty() ? config.model_types() : std::vector<std::string>{wanted};
  for (const std::string& type : types)
    for (const Family& family : families())
      if (family.model_type == type) return family;
  const std::string known = fmt::format("{}", fmt::join(family_names(), ", "));
  if (!wanted.empty()) throw CheckpointError(fmt::format("unknown family {}; known: {}", in_quotes(wanted), known));
  if (types.empty()) config.refuse("model_type", "missing", "one of " + known);
  throw CheckpointError(fmt::format("config.json: unknown model_type {}; known: {}", in_quotes(types.back()), known));
}

void check_fits_itself(const MoeConfig& config) {
  try {
    config.validate();
  } catch (const ConfigError& error) {
    throw CheckpointError(fmt::format("config.json: {}", error.what()));
  }
}

}  // namespace

MoeModel describe_model(const std::string& config_json, const Catalog& catalog, const std::string& family_name) {
  const ConfigReader config(config_json);
  const Family& family = pick_family(config, family_name);
  config.refuse_quantized();
  const FamilyRules rules = family.rules(config);
  check_fits_itself(rules.config);

  MoeModel model;
  const auto types = config.model_types();
  model.model_type = types.empty() ? std::string(family.model_type) : types.front();
  model.family = family.model_type;
  model.num_hidden_layers = rules.num_hidden_layers;
  model.notes = rules.notes;
  const LayerMatcher matcher(rules, catalog);
  // Layers past num_hidden_layers (multi-token prediction) are not part of the model proper.
  for (std::int64_t layer = 0; layer < rules.num_hidden_layers; ++layer)
    if (auto found = matcher.match(layer)) model.layers.push_back(std::move(*found));
  if (model.layers.empty())
    throw CheckpointError(fmt::format("config.json: none of the {} layers is an MoE layer ({})",
                                      rules.num_hidden_layers, rules.sparse_rule));
  const LayerTensors& first = model.layers.front();
  model.dtype = *dtype_of_name(
      catalog.at(first.fused() ? first.fused_gate_up : first.expert_prefix + "0." + first.gate_name).dtype);
  return model;
}

}  // namespace epmoe::checkpoint
