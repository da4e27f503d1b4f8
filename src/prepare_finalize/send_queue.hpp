#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "epmoe/comm/request_set.hpp"
#include "epmoe/comm/slot_pool.hpp"
#include "epmoe/core/execution_context.hpp"

namespace epmoe {

/// One message on its way out. Its bytes lie in `owned`, or in memory that outlives the queue.
struct OutgoingMessage {
  Phase phase = Phase::dispatch;
  int peer = -1;
  int tag = 0;
  const std::byte* data = nullptr;
  std::int64_t blocks = 0;
  std::int64_t rows = 0;
  comm::SlotPool::Slot owned;
};

/// A message that was posted or has arrived, for the observer.
struct MessageRecord {
  Phase phase = Phase::dispatch;
  int peer = -1;
  bool sent = false;
  std::int64_t bytes = 0;
  std::int64_t rows = 0;
};

/// Sends in order, at most `window` at a time, so that no peer is flooded.
class SendQueue {
 public:
  SendQueue(comm::RequestSet& requests, int window, std::vector<MessageRecord>& log)
      : requests_(&requests), window_(static_cast<std::size_t>(window)), log_(&log) {}
  void push(OutgoingMessage message) { waiting_.push_back(std::move(message)); }
  /// Lets go of what is sent and posts what the window has room for.
  void advance();
  [[nodiscard]] bool empty() const { return waiting_.empty() && posted_.empty(); }
  /// Gives up buffers that MPI may still read.
  void leak();

 private:
  struct Posted {
    int request;
    OutgoingMessage message;
  };
  comm::RequestSet* requests_;
  std::size_t window_;
  std::vector<MessageRecord>* log_;
  std::deque<OutgoingMessage> waiting_;
  std::vector<Posted> posted_;
};

}  // namespace epmoe
