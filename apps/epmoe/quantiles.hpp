#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace epmoe::cli {

/// Value at fraction `q` of the sorted values, interpolated; 0 without values.
inline double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

}  // namespace epmoe::cli
