#include "choices.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "epmoe/core/error.hpp"

namespace epmoe::cli {

void Choices::check(const std::string& value) const {
  if (std::find(built.begin(), built.end(), value) != built.end()) return;
  const bool planned = std::find(later.begin(), later.end(), value) != later.end();
  throw ConfigError(fmt::format("{} {}: {}; there are: {}", flag, value, planned ? "not built yet" : "unknown",
                                fmt::join(built, ", ")));
}

}  // namespace epmoe::cli
