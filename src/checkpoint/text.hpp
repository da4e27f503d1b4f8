#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "epmoe/core/error.hpp"

/// Pieces of error messages. What comes from a file may hold anything, so it is quoted before it is shown.
namespace epmoe::checkpoint {

/// In double quotes, cut after some 160 bytes; control characters and what is not UTF-8 are escaped: one line of valid
/// text whatever the file says.
std::string in_quotes(std::string_view text);
/// "[2, 3]"
std::string shape_text(std::span<const std::int64_t> shape);
/// "a, b, c and 4 more"
std::string list_text(const std::vector<std::string>& items, std::size_t shown = 5);
/// "1 file", "2 files"
std::string count_text(std::uint64_t count, std::string_view noun);

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what);
[[noreturn]] void fail(const std::filesystem::path& file, std::string_view tensor, const std::string& what);

}  // namespace epmoe::checkpoint
