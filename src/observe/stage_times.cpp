#include "epmoe/observe/stage_times.hpp"

#include <algorithm>

namespace epmoe {

void StageTimes::message(Phase phase, int peer, bool sent, std::int64_t bytes, std::int64_t rows) {
  PeerTraffic& traffic = (phase == Phase::combine ? combine_ : dispatch_)[static_cast<std::size_t>(peer)];
  (sent ? traffic.bytes_sent : traffic.bytes_received) += bytes;
  (sent ? traffic.rows_sent : traffic.rows_received) += rows;
  ++(sent ? traffic.messages_sent : traffic.messages_received);
}

std::int64_t StageTimes::bytes_sent() const {
  std::int64_t total = 0;
  for (const auto* peers : {&dispatch_, &combine_})
    for (const PeerTraffic& peer : *peers) total += peer.bytes_sent;
  return total;
}

void StageTimes::reset() {
  seconds_.fill(0.0);
  std::fill(dispatch_.begin(), dispatch_.end(), PeerTraffic{});
  std::fill(combine_.begin(), combine_.end(), PeerTraffic{});
  std::fill(expert_rows_.begin(), expert_rows_.end(), std::int64_t{0});
}

}  // namespace epmoe
