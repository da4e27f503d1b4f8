#pragma once
#include <cstdint>
#include <string_view>

#include "epmoe/core/placement.hpp"
#include "epmoe/core/stage_data.hpp"

namespace epmoe {

/// Routing made up for tests and benchmarks; values depend on (seed, global token) only, so any split over ranks gives
/// the same. Ids of a token are distinct unless stated; weights are positive, descend and sum to 1. Beside kNoExpert
/// the weight is NaN: nothing may read it.
enum class Script : std::uint8_t {
  uniform,     ///< k distinct experts, each equally likely
  zipf,        ///< expert e with probability ~ 1 / (e + 1), distinct
  hot_expert,  ///< expert `hot` in every token, the rest uniform
  hot_rank,    ///< only experts of rank `hot` (repeating if it owns fewer than k, kNoExpert if none)
  none,        ///< all kNoExpert
  some_none,   ///< uniform with about a third of the entries kNoExpert
  duplicated,  ///< one expert k times
};
std::string_view name(Script script);
/// Throws InputError if top_k or hot is out of range.
OwnedRouting scripted_routing(Script script, std::int64_t tokens, std::int64_t top_k, const Placement& placement,
                              std::uint64_t seed, std::int64_t global_first_token, std::int32_t hot = 0);

}  // namespace epmoe
