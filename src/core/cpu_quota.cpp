#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "epmoe/core/cpu_limits.hpp"

namespace epmoe {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// quota / period in microseconds; nothing for "max", -1 and what is no number.
std::optional<double> ratio(const std::string& quota, const std::string& period) {
  const double granted = std::strtod(quota.c_str(), nullptr), of = std::strtod(period.c_str(), nullptr);
  if (!(granted > 0.0 && of > 0.0)) return std::nullopt;
  return granted / of;
}

std::optional<double> limit_of(const std::string& group, bool version2) {
  if (!version2) return ratio(text_of(group + "/cpu.cfs_quota_us"), text_of(group + "/cpu.cfs_period_us"));
  std::istringstream words(text_of(group + "/cpu.max"));
  std::string quota, period;
  words >> quota >> period;
  return ratio(quota, period);
}

/// The group and all above it, up to where its hierarchy is mounted.
void lower_to(CpuQuota& lowest, const std::string& mount, std::string path, bool version2) {
  for (;;) {
    if (path == "/") path.clear();
    if (const auto limit = limit_of(mount + path, version2); limit && (lowest.cpus == 0.0 || *limit < lowest.cpus))
      lowest = {*limit, mount + path};
    if (path.empty()) return;
    path.erase(path.find_last_of('/'));
  }
}

bool has_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

}  // namespace

CpuQuota read_cpu_quota(const std::string& self_cgroup, const std::string& mount) {
  CpuQuota lowest;
  std::istringstream lines(self_cgroup);
  for (std::string line; std::getline(lines, line);) {  // "hierarchy:controllers:/path"
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty())
      for (const char* where : {"", "/unified"}) lower_to(lowest, mount + where, path, true);
    else if (has_word(controllers, "cpu"))
      for (const std::string& where : {"/" + controllers, std::string("/cpu")})
        lower_to(lowest, mount + where, path, false);
  }
  return lowest;
}

}  // namespace epmoe
