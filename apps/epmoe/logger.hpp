#pragma once
#include <memory>
#include <string>

#include "epmoe/core/execution_context.hpp"

namespace epmoe::cli {

/// To stderr, each line with time, rank and level. `level`: trace, debug, info, warn, error or off (ConfigError on
/// anything else).
std::unique_ptr<Logger> make_logger(const std::string& level, int rank);

}  // namespace epmoe::cli
