#include "epmoe/comm/slot_pool.hpp"

#include <algorithm>

namespace epmoe::comm {

SlotPool::Slot SlotPool::take(std::int64_t bytes) {
  auto& free = state_->free;
  const auto fits = [&](const AlignedBuffer& b) { return b.size() >= bytes; };
  const auto smaller = [](const AlignedBuffer& a, const AlignedBuffer& b) { return a.size() < b.size(); };
  auto best = free.end();
  for (auto it = free.begin(); it != free.end(); ++it)
    if (fits(*it) && (best == free.end() || it->size() < best->size())) best = it;

  Slot slot;
  if (best != free.end()) {
    slot.buffer_ = std::move(*best);
    free.erase(best);
  } else {
    // The largest of those that are too small makes room, so that growing calls do not pile buffers up.
    if (const auto largest = std::max_element(free.begin(), free.end(), smaller); largest != free.end()) {
      state_->bytes -= largest->size();
      free.erase(largest);
    }
    const std::int64_t wanted = std::max(bytes, kCacheLineBytes);
    slot.buffer_ = AlignedBuffer(round_up(wanted, wanted < 4096 ? kCacheLineBytes : 4096));
    state_->bytes += slot.buffer_.size();
    state_->peak_bytes = std::max(state_->peak_bytes, state_->bytes);
  }
  state_->in_use += slot.buffer_.size();
  slot.state_ = state_;
  return slot;
}

void SlotPool::leak() {
  for (auto& buffer : state_->free) {
    state_->bytes -= buffer.size();
    buffer.leak();
  }
  state_->free.clear();
}

SlotPool::Slot& SlotPool::Slot::operator=(Slot&& other) noexcept {
  if (this != &other) {
    give_back();
    state_ = std::move(other.state_);
    buffer_ = std::move(other.buffer_);
    other.state_.reset();
    other.buffer_ = AlignedBuffer();
  }
  return *this;
}

SlotPool::Slot::~Slot() {
  give_back();
}

void SlotPool::Slot::give_back() {
  if (!state_) return;
  state_->in_use -= buffer_.size();
  state_->free.push_back(std::move(buffer_));
  state_.reset();
  buffer_ = AlignedBuffer();
}

void SlotPool::Slot::leak() {
  if (!state_) return;
  state_->in_use -= buffer_.size();
  state_->bytes -= buffer_.size();
  state_.reset();
  buffer_.leak();
}

}  // namespace epmoe::comm
