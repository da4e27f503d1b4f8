#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "job.hpp"

namespace epmoe::cli {

/// Where experts live, from a file; see parse_expert_map.
struct ExpertMap {
  std::vector<std::int32_t> owner;    ///< [slot] rank
  std::vector<std::int32_t> logical;  ///< [slot] expert; empty: slot i holds expert i
};

/// JSON text: a list with the owner rank of each expert, `[0, 0, 1, 1]`, or an object with two lists of equal length,
/// `{"owner": [0, 1, 1], "logical": [0, 0, 1]}`, an entry for each slot, so that an expert may have replicas on
/// several ranks. Throws ConfigError naming `file` and what is wrong; ranges are Placement's to check.
ExpertMap parse_expert_map(const std::string& text, const std::string& file);
/// Collective: rank 0 reads the file.
ExpertMap read_expert_map(Job& job, const std::string& file);

}  // namespace epmoe::cli
