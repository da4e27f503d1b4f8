#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace epmoe::cli {

/// A flag whose values have names. Names that are planned and not built yet are refused as such, never replaced.
struct Choices {
  std::string_view flag;
  std::vector<std::string_view> built;
  std::vector<std::string_view> later;
  /// Throws ConfigError naming flag, value and what is known.
  void check(const std::string& value) const;
};

}  // namespace epmoe::cli
