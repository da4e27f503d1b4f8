#pragma once
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "checkpoint/families/family_rules.hpp"
#include "epmoe/checkpoint/family.hpp"

namespace epmoe::checkpoint {

/// Matches a family's rules with the tensors present. What a layer is, is decided by its tensors; config.json must
/// agree. Every tensor of an MoE block must have a place in LayerTensors, so that nothing is skipped in silence.
class LayerMatcher {
 public:
  LayerMatcher(const FamilyRules& rules, const Catalog& catalog);
  /// Nothing for a dense layer.
  [[nodiscard]] std::optional<LayerTensors> match(std::int64_t layer) const;

 private:
  struct Expected {
    std::string name;
    std::vector<std::int64_t> shape;
    std::string why;  // which config keys make this shape
  };
  const FamilyRules& rules_;
  const Catalog& catalog_;
  std::string root_;  // before "layers."

  [[nodiscard]] bool any_below(const std::string& prefix) const;
  [[nodiscard]] std::optional<std::string> find_block(const std::string& layer_prefix) const;
  [[nodiscard]] std::vector<Expected> expect(const std::string& block, LayerTensors& tensors) const;
  void expect_experts(const std::string& block, LayerTensors& tensors, std::vector<Expected>& out) const;
  void check(const Expected& expected) const;
  void refuse_unmapped(const std::string& block, const std::vector<Expected>& expected) const;
};

}  // namespace epmoe::checkpoint
