#include "bench_machine.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace epmoe::cli {

std::int64_t last_level_cache_bytes() {
  std::int64_t most = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    std::int64_t size = 0;
    char unit = '\0';
    if (!(file >> size)) continue;
    file >> unit;
    most = std::max(most, size * (unit == 'K' ? 1 << 10 : (unit == 'M' ? 1 << 20 : 1)));
  }
  return most;
}

std::int64_t available_memory_bytes() {
  std::int64_t bytes = static_cast<std::int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  std::ifstream info("/proc/meminfo");
  for (std::string key, rest; info >> key; std::getline(info, rest))
    if (std::int64_t kib = 0; key == "MemAvailable:" && info >> kib) bytes = kib << 10U;
  std::int64_t limit = 0, used = 0;  // "max" where there is no limit
  std::ifstream most("/sys/fs/cgroup/memory.max"), now("/sys/fs/cgroup/memory.current");
  if (most >> limit && now >> used) bytes = std::min(bytes, std::max<std::int64_t>(limit - used, 0));
  return bytes;
}

}  // namespace epmoe::cli
