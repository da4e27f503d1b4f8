#pragma once
#include <cstdint>

namespace epmoe::cli {

/// Bytes of the largest cache the system shows, 0 if it shows none.
std::int64_t last_level_cache_bytes();
/// Bytes this process may still take: what the system says is available, and its control group's limit if lower.
std::int64_t available_memory_bytes();

}  // namespace epmoe::cli
