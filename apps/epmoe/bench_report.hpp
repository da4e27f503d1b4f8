#pragma once
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "epmoe/core/execution_context.hpp"

namespace epmoe::cli {

/// One measured line: medians over the samples that were kept.
struct BenchExpertsLine {
  std::string model, format, backend, isa, skew;
  std::int64_t tokens = 0, threads = 0;
  double median_s = 0.0, p10_s = 0.0, p90_s = 0.0;
  double expert_bytes = 0.0;  ///< of the distinct experts hit, as stored; median over the samples
  double flops = 0.0;
  double read_bytes_per_s = 0.0, peak_flops = 0.0;
  double floor_s = 0.0;  ///< max(expert_bytes / read_bytes_per_s, flops / peak_flops)
  std::array<double, static_cast<std::size_t>(Phase::count)> phase_s{};  ///< means over the samples kept
  std::int64_t repeats = 0;                                              ///< samples kept
  std::int64_t rejected = 0;  ///< samples whose probes said that the machine was busy
  bool steady = true;         ///< at least half of the samples were kept; if none was, all count
  bool checked = false;
  [[nodiscard]] double floor_fraction() const { return floor_s / median_s; }
};

/// Writes lines as they come: JSON lines to a file or stdout, and a table to stdout unless the JSON goes there.
class BenchReport {
 public:
  /// `json` is a file, "-" or empty. Throws ConfigError if the file cannot be written.
  explicit BenchReport(const std::string& json);
  ~BenchReport();
  BenchReport(const BenchReport&) = delete;
  BenchReport& operator=(const BenchReport&) = delete;
  /// A line above the table; not in the JSON.
  void heading(const std::string& text);
  void add(const BenchExpertsLine& line);

 private:
  std::FILE* json_ = nullptr;
  bool table_ = true;
  bool header_ = false;
};

}  // namespace epmoe::cli
