#include "epmoe/core/aligned_memory.hpp"

#include <fmt/format.h>

#include <limits>

#include "epmoe/core/error.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define EPMOE_LEAK_CHECK 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EPMOE_LEAK_CHECK 1
#endif
#endif
#ifdef EPMOE_LEAK_CHECK
#include <sanitizer/lsan_interface.h>
#endif

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

void ignore_leak([[maybe_unused]] const void* memory) {
#ifdef EPMOE_LEAK_CHECK
  __lsan_ignore_object(memory);
#endif
}

void AlignedBuffer::leak() {
  ignore_leak(data_.get());
  (void)data_.release();
  bytes_ = 0;
}

}  // namespace epmoe
