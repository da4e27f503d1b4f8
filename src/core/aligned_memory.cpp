#include "epmoe/core/aligned_memory.hpp"

#include <fmt/format.h>

#include <limits>

#include "epmoe/core/error.hpp"

namespace epmoe {

AlignedBuffer::AlignedBuffer(std::int64_t bytes) : bytes_(bytes) {
  constexpr std::int64_t kPageBytes = 4096;
  if (bytes == 0) return;
  if (bytes < 0 || bytes > std::numeric_limits<std::int64_t>::max() - kPageBytes)
    throw InternalError(fmt::format("a buffer of {} bytes was asked for", bytes));
  const std::int64_t alignment = bytes >= (1 << 20) ? kPageBytes : kCacheLineBytes;
  void* memory =
      std::aligned_alloc(static_cast<std::size_t>(alignment), static_cast<std::size_t>(round_up(bytes, alignment)));
  if (memory == nullptr) throw InternalError(fmt::format("out of memory: {} bytes wanted", bytes));
  data_.reset(static_cast<std::byte*>(memory));
}

}  // namespace epmoe
