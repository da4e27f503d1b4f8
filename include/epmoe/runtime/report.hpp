#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "epmoe/comm/communicator.hpp"
#include "epmoe/observe/stage_times.hpp"

namespace epmoe {

/// One rank's part of a run.
struct RankReport {
  std::array<double, static_cast<std::size_t>(Phase::count)> seconds{};
  double total_seconds = 0.0;  ///< of the forward calls
  std::int64_t tokens = 0, rows_received = 0, entries_computed = 0, chunks = 0;
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_read = 0;  ///< of the checkpoint's tensors
  std::int64_t packed_bytes = 0;
};

/// What all ranks report, joined.
struct RunReport {
  std::vector<RankReport> ranks;
  std::vector<std::int64_t> expert_rows;                    ///< [experts] over all ranks
  std::vector<std::vector<PeerTraffic>> dispatch, combine;  ///< [rank][peer]
  struct Spread {
    double min = 0.0, mean = 0.0, max = 0.0;
  };
  [[nodiscard]] Spread phase(Phase phase) const;
  [[nodiscard]] Spread total() const;
};

/// Collective; the same on every rank.
RunReport join_reports(const comm::Communicator& comm, const RankReport& mine, const StageTimes& times,
                       const ExecutionContext& context);

}  // namespace epmoe
