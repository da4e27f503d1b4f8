#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace epmoe::checkpoint {

/// Parses JSON strictly: a duplicate key is an error (a DOM would silently keep the last one), and so is nesting
/// deeper than any file of ours has. Throws CheckpointError naming `file`.
nlohmann::json parse_json(std::string_view text, const std::filesystem::path& file);

}  // namespace epmoe::checkpoint
