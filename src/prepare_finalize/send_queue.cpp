#include "prepare_finalize/send_queue.hpp"

#include <utility>

namespace epmoe {

void SendQueue::advance() {
  std::erase_if(posted_, [&](const Posted& sent) { return requests_->done(sent.request); });
  while (!waiting_.empty() && posted_.size() < window_) {
    auto message = std::move(waiting_.front());
    waiting_.pop_front();
    const int request = requests_->send(message.data, message.blocks, message.peer, message.tag);
    log_->push_back({message.phase, message.peer, true, message.blocks * comm::kBlockBytes, message.rows});
    posted_.push_back({request, std::move(message)});
  }
}

void SendQueue::leak() {
  for (auto& sent : posted_) sent.message.owned.leak();
}

}  // namespace epmoe
