#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

/// Owned memory aligned to cache lines. Local.
namespace epmoe {

inline constexpr std::int64_t kCacheLineBytes = 64;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

/// Tells leak checkers that `memory`, and what it points to, is given up on purpose. Nothing elsewhere.
void ignore_leak(const void* memory);

/// A fixed number of bytes, uninitialised; 64-byte aligned, to 4096 from 1 MiB up, to 2 MiB from 4 MiB up, where the
/// system is asked for transparent huge pages. Pages belong to the NUMA node of the thread that first writes them.
/// Throws InternalError naming the bytes when there is no memory.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::int64_t bytes);
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::move(other.data_)), bytes_(std::exchange(other.bytes_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    data_ = std::move(other.data_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  [[nodiscard]] std::byte* data() { return data_.get(); }
  [[nodiscard]] const std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::int64_t size() const { return bytes_; }
  template <class T>
  [[nodiscard]] T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <class T>
  [[nodiscard]] const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }
  /// Gives the memory up for good: for buffers that MPI may still write to after a broken step.
  void leak();

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::int64_t bytes_ = 0;
};

}  // namespace epmoe
