#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "epmoe/core/execution_context.hpp"

/// Seconds per phase, messages per peer and rows per expert of one rank. Not thread-safe.
namespace epmoe {

struct PeerTraffic {
  std::int64_t bytes_sent = 0, rows_sent = 0, messages_sent = 0;
  std::int64_t bytes_received = 0, rows_received = 0, messages_received = 0;
};

class StageTimes final : public Observer {
 public:
  StageTimes(int peers, std::int64_t experts)
      : dispatch_(static_cast<std::size_t>(peers)),
        combine_(static_cast<std::size_t>(peers)),
        expert_rows_(static_cast<std::size_t>(experts), 0) {}
  void add_time(Phase phase, double seconds) override { seconds_[static_cast<std::size_t>(phase)] += seconds; }
  void message(Phase phase, int peer, bool sent, std::int64_t bytes, std::int64_t rows) override;
  void expert_rows(std::int32_t logical_expert, std::int64_t rows) override {
    expert_rows_[static_cast<std::size_t>(logical_expert)] += rows;
  }
  [[nodiscard]] double seconds(Phase phase) const { return seconds_[static_cast<std::size_t>(phase)]; }
  [[nodiscard]] const std::vector<PeerTraffic>& dispatch() const { return dispatch_; }
  [[nodiscard]] const std::vector<PeerTraffic>& combine() const { return combine_; }
  [[nodiscard]] const std::vector<std::int64_t>& expert_rows() const { return expert_rows_; }
  [[nodiscard]] std::int64_t bytes_sent() const;
  void reset();

 private:
  std::array<double, static_cast<std::size_t>(Phase::count)> seconds_{};
  std::vector<PeerTraffic> dispatch_, combine_;
  std::vector<std::int64_t> expert_rows_;
};

}  // namespace epmoe
