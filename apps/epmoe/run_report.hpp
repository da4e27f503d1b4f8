#pragma once
#include <optional>
#include <string>
#include <vector>

#include "epmoe/runtime/report.hpp"
#include "epmoe/runtime/verify.hpp"

namespace epmoe::cli {

/// What a run has to say, for the terminal and as data.
struct RunSummary {
  std::string model, family;
  MoeConfig shape;  ///< of the first layer run
  int ranks = 1, threads = 1;
  std::string strategy, placement, backend, isa;
  std::string compute, dispatch, combine;
  bool reproducible = false;
  std::int64_t repeat = 1;
  std::vector<std::int64_t> tokens_per_rank;
  std::uint64_t header_bytes = 0;
  struct Layer {
    std::int64_t index = 0;
    MoeConfig shape;
    RunReport report;           ///< seconds, rows and bytes are means over the repeats
    double load_seconds = 0.0;  ///< the slowest rank's
    std::optional<Verification> verification;
  };
  std::vector<Layer> layers;
  [[nodiscard]] bool ok() const;  ///< nothing failed to verify
};

std::string as_table(const RunSummary& summary, bool stats);
std::string as_json(const RunSummary& summary);

}  // namespace epmoe::cli
