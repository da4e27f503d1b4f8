#include <fmt/format.h>

#include <limits>

#include "epmoe/prepare_finalize/prepare_finalize.hpp"

namespace epmoe {

void PrepareFinalizeConfig::validate() const {
  const auto wanted_positive = [](const char* field, std::int64_t found) {
    if (found < 1) throw ConfigError(fmt::format("{}: found {}, wanted at least 1", field, found));
  };
  wanted_positive("hidden", hidden);
  wanted_positive("top_k", top_k);
  wanted_positive("experts", experts);
  if (top_k > std::numeric_limits<std::uint16_t>::max())
    throw ConfigError(
        fmt::format("top_k: found {}, wanted at most {}", top_k, std::numeric_limits<std::uint16_t>::max()));
  if (experts > std::numeric_limits<std::int32_t>::max())
    throw ConfigError(fmt::format("experts: found {}, wanted a 32-bit number", experts));
  if (max_num_tokens_per_rank < 0)
    throw ConfigError(
        fmt::format("max_num_tokens_per_rank: found {}, wanted 0 (no bound) or more", max_num_tokens_per_rank));
  if (reproducible && combine != CombineType::f32)
    throw ConfigError(
        fmt::format("reproducible: found combine type {}, wanted f32, since any rounding on the way home "
                    "depends on which rank owns an expert",
                    epmoe::name(combine)));
  if (router_weight_on_input && top_k != 1)
    throw ConfigError(
        fmt::format("router_weight_on_input: found top_k {}, wanted 1, since a row travels once and can "
                    "carry one weight only",
                    top_k));
}

}  // namespace epmoe
