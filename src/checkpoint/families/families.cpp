#include <array>

#include "checkpoint/families/family_rules.hpp"
#include "epmoe/checkpoint/family.hpp"

namespace epmoe::checkpoint {
namespace {

constexpr std::array<Family, 6> kFamilies{{
    {"deepseek_v2", deepseek_v2},
    {"deepseek_v3", deepseek_v3},
    {"mixtral", mixtral},
    {"olmoe", olmoe},
    {"qwen2_moe", qwen2_moe},
    {"qwen3_moe", qwen3_moe},
}};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

std::vector<std::string_view> family_names() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.model_type);
  return names;
}

}  // namespace epmoe::checkpoint
