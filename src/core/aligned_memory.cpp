#include "epmoe/core/aligned_memory.hpp"

#include <fmt/format.h>

#include <limits>

#include "epmoe/core/error.hpp"

#ifdef __linux__
#include <sys/mman.h>
#endif

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
namespace {

constexpr std::int64_t kPageBytes = 4096;
constexpr std::int64_t kHugePageBytes = 2 << 20;

std::int64_t alignment_for(std::int64_t bytes) {
  if (bytes >= 2 * kHugePageBytes) return kHugePageBytes;
  return bytes >= (1 << 20) ? kPageBytes : kCacheLineBytes;
}

/// Streaming through small pages costs page walks. Only advice: where the system has no huge pages nothing changes.
void advise_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  (void)madvise(memory, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
#endif
}

}  // namespace

AlignedBuffer::AlignedBuffer(std::int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  if (bytes < 0 || bytes > std::numeric_limits<std::int64_t>::max() - kHugePageBytes)
    throw InternalError(fmt::format("a buffer of {} bytes was asked for", bytes));
  const std::int64_t alignment = alignment_for(bytes);
  void* memory =
      std::aligned_alloc(static_cast<std::size_t>(alignment), static_cast<std::size_t>(round_up(bytes, alignment)));
  if (memory == nullptr) throw InternalError(fmt::format("out of memory: {} bytes wanted", bytes));
  data_.reset(static_cast<std::byte*>(memory));
  if (alignment == kHugePageBytes) advise_huge_pages(memory, bytes / kHugePageBytes * kHugePageBytes);
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
