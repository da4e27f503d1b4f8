#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "epmoe/core/aligned_memory.hpp"

namespace epmoe::comm {

/// Message buffers of a group, reused by all layers and calls. Not thread-safe. Buffers are handed out with at least
/// the bytes asked for (the smallest free one that fits, else a new one, which replaces the largest free one) and come
/// back when their Slot is dropped, which may be after the pool is gone.
class SlotPool {
  struct State {
    std::vector<AlignedBuffer> free;
    std::int64_t bytes = 0, peak_bytes = 0, in_use = 0;
  };

 public:
  SlotPool() = default;
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;
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
    void leak();

   private:
    friend class SlotPool;
    void give_back();
    std::shared_ptr<State> state_;
    AlignedBuffer buffer_;
  };
  Slot take(std::int64_t bytes);
  /// Bytes held, in use and free.
  [[nodiscard]] std::int64_t bytes() const { return state_->bytes; }
  [[nodiscard]] std::int64_t peak_bytes() const { return state_->peak_bytes; }
  [[nodiscard]] std::int64_t in_use() const { return state_->in_use; }
  /// Gives the free buffers up for good: for a broken group.
  void leak();

 private:
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace epmoe::comm
