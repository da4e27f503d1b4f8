#include "bench_report.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "epmoe/core/error.hpp"
#include "run_output.hpp"

namespace epmoe::cli {
namespace {

constexpr Phase kPhases[] = {Phase::permute, Phase::gemm1, Phase::act, Phase::gemm2};

std::string as_json(const BenchExpertsLine& line) {
  nlohmann::ordered_json j;
  j["bench"] = "experts";
  j["model"] = line.model;
  j["format"] = line.format;
  j["backend"] = line.backend;
  j["isa"] = line.isa;
  j["tokens"] = line.tokens;
  j["threads"] = line.threads;
  j["skew"] = line.skew;
  j["median_s"] = line.median_s;
  j["p10_s"] = line.p10_s;
  j["p90_s"] = line.p90_s;
  j["floor_s"] = line.floor_s;
  j["floor_fraction"] = line.floor_fraction();
  j["expert_bytes"] = line.expert_bytes;
  j["flops"] = line.flops;
  j["read_bytes_per_s"] = line.read_bytes_per_s;
  j["peak_flops"] = line.peak_flops;
  for (const Phase phase : kPhases) j["phase_s"][name(phase)] = line.phase_s[static_cast<std::size_t>(phase)];
  j["repeats"] = line.repeats;
  j["rejected"] = line.rejected;
  j["steady"] = line.steady;
  j["checked"] = line.checked;
  return j.dump();
}

std::string steadiness(const BenchExpertsLine& line) {
  if (line.steady) return {};
  if (line.repeats == line.rejected)
    return fmt::format("  not steady: all {} samples rejected, all count", line.repeats);
  return fmt::format("  not steady: {} of {} samples rejected", line.rejected, line.repeats + line.rejected);
}

void check_written(bool ok, const char* where) {
  if (!ok) throw ConfigError(fmt::format("bench: cannot write {}: {}", where, std::strerror(errno)));
}

}  // namespace

BenchReport::BenchReport(const std::string& json) : table_(json != "-") {
  if (json == "-") json_ = stdout;
  if (json.empty() || json == "-") return;
  check_writable(json);
  json_ = std::fopen(json.c_str(), "w");
  if (json_ == nullptr) throw ConfigError(fmt::format("--json {}: {}", json, std::strerror(errno)));
}

BenchReport::~BenchReport() {
  if (json_ != nullptr && json_ != stdout) std::fclose(json_);
}

void BenchReport::heading(const std::string& text) {
  if (table_) fmt::print("{}\n", text);
}

void BenchReport::add(const BenchExpertsLine& line) {
  if (json_ != nullptr) {
    const std::string text = as_json(line) + "\n";
    check_written(std::fwrite(text.data(), 1, text.size(), json_) == text.size() && std::fflush(json_) == 0, "--json");
  }
  if (!table_) return;
  if (!header_)
    fmt::print("\n{:<7}{:>7} {:<8}{:>4}  {:<21}{:<22}{:>9}{:>9}{:>9}{:>7}{:>8}{:>9}{:>9}{:>7}{:>7}{:>7}{:>7}\n",
               "format", "tokens", "skew", "thr", "back end", "isa", "ms", "p10", "p90", "floor", "GB/s", "of", "Gop/s",
               "perm", "gemm1", "act", "gemm2");
  header_ = true;
  const auto share = [&](Phase phase) { return line.phase_s[static_cast<std::size_t>(phase)] / line.median_s; };
  fmt::print(
      "{:<7}{:>7} {:<8}{:>4}  {:<21}{:<22}{:>9.3f}{:>9.3f}{:>9.3f}{:>7.2f}{:>8.1f}{:>9.1f}{:>9.0f}{:>7.2f}{:>7.2f}"
      "{:>7.2f}{:>7.2f}{}\n",
      line.format, line.tokens, line.skew, line.threads, line.backend, line.isa, line.median_s * 1e3, line.p10_s * 1e3,
      line.p90_s * 1e3, line.floor_fraction(), line.expert_bytes / line.median_s / 1e9, line.read_bytes_per_s / 1e9,
      line.flops / line.median_s / 1e9, share(Phase::permute), share(Phase::gemm1), share(Phase::act),
      share(Phase::gemm2), steadiness(line));
  std::fflush(stdout);
}

}  // namespace epmoe::cli
