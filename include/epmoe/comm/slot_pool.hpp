#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "epmoe/core/aligned_memory.hpp"

namespace epmoe::comm {

/// Message buffers of a group, reused by all layers and calls. Not thread-safe. Buffers are handed out with at least
/// the bytes asked for (smallest free one that fits, else a new one) and come back when their Slot is dropped.
class SlotPool {
 public:
  class Slot {
   public:
    Slot() = default;
    Slot(Slot&& other) noexcept { *this = std::move(other); }
    Slot& operator=(Slot&& other) noexcept;
    ~Slot();
    [[nodiscard]] std::byte* data() { return buffer_.data(); }
    [[nodiscard]] const std::byte* data() const { return buffer_.data(); }
    [[nodiscard]] std::int64_t size() const { return buffer_.size(); }
    /// Never returned and never freed: MPI may still write to it.
    void leak() { buffer_.leak(); pool_ = nullptr; }

   private:
    friend class SlotPool;
    SlotPool* pool_ = nullptr;
    AlignedBuffer buffer_;
  };
  Slot take(std::int64_t bytes);
  /// Bytes held, in use and free.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] std::int64_t peak_bytes() const { return peak_bytes_; }
  [[nodiscard]] std::int64_t in_use() const { return in_use_; }

 private:
  std::vector<AlignedBuffer> free_;
  std::int64_t bytes_ = 0, peak_bytes_ = 0, in_use_ = 0;
};

}  // namespace epmoe::comm
