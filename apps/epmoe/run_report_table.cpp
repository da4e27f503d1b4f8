#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "run_report.hpp"

namespace epmoe::cli {
namespace {

std::string bytes(double count) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (count >= 1024.0 && unit + 1 < std::size(units)) {
    count /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", count) : fmt::format("{:.1f} {}", count, units[unit]);
}

struct Summary {
  double min = 0.0, mean = 0.0, max = 0.0;
};
template <class Range, class Value>
Summary summarise(const Range& range, Value value) {
  Summary s;
  bool first = true;
  for (const auto& item : range) {
    const auto v = static_cast<double>(value(item));
    s.min = first ? v : std::min(s.min, v);
    s.max = first ? v : std::max(s.max, v);
    s.mean += v / static_cast<double>(std::size(range));
    first = false;
  }
  return s;
}

using Out = std::back_insert_iterator<std::string>;

void bytes_line(Out out, const char* label, const Summary& s) {
  fmt::format_to(out, "  {:<22}{:>12}{:>12}{:>12}\n", label, bytes(s.min), bytes(s.mean), bytes(s.max));
}
void count_line(Out out, const char* label, const Summary& s) {
  fmt::format_to(out, "  {:<22}{:>12.0f}{:>12.1f}{:>12.0f}", label, s.min, s.mean, s.max);
  if (s.mean > 0.0) fmt::format_to(out, "   max/mean {:.2f}", s.max / s.mean);
  fmt::format_to(out, "\n");
}

void layer_table(Out out, const RunSummary::Layer& layer) {
  const auto& report = layer.report;
  fmt::format_to(out, "\nlayer {:<18}{:>12}{:>12}{:>12}\n", layer.index, "min", "mean", "max");
  for (std::size_t p = 0; p < static_cast<std::size_t>(Phase::count); ++p) {
    const auto s = report.phase(static_cast<Phase>(p));
    if (s.max > 0.0)
      fmt::format_to(out, "  {:<22}{:>9.3f} ms{:>9.3f} ms{:>9.3f} ms\n", name(static_cast<Phase>(p)), s.min * 1e3,
                     s.mean * 1e3, s.max * 1e3);
  }
  const auto total = report.total();
  fmt::format_to(out, "  {:<22}{:>9.3f} ms{:>9.3f} ms{:>9.3f} ms\n", "whole call", total.min * 1e3, total.mean * 1e3,
                 total.max * 1e3);
  count_line(out, "tokens per expert", summarise(report.expert_rows, [](auto rows) { return rows; }));
  count_line(out, "(token, expert) a rank", summarise(report.ranks, [](const auto& r) { return r.entries_computed; }));
  bytes_line(out, "sent a rank", summarise(report.ranks, [](const auto& r) { return r.bytes_sent; }));
  const auto read = summarise(report.ranks, [](const auto& r) { return r.bytes_read; });
  if (read.max > 0.0) bytes_line(out, "read a rank", read);
  bytes_line(out, "packed weights a rank", summarise(report.ranks, [](const auto& r) { return r.packed_bytes; }));
  if (layer.verification) {
    const auto& v = *layer.verification;
    fmt::format_to(
        out, "  verify: {}: relative error {:.2e} (worst row {:.2e}), allowed {:.0e}; drift to unquantised {:.2e}\n",
        v.ok ? "ok" : "FAILED", v.error, v.worst_row, v.tolerance, v.drift);
  }
}

void stats_table(Out out, const RunSummary::Layer& layer) {
  fmt::format_to(out, "  tokens per expert:");
  for (std::size_t e = 0; e < layer.report.expert_rows.size(); ++e)
    fmt::format_to(out, "{}{:>7}", e % 16 == 0 ? fmt::format("\n  {:>6}:", e) : std::string(),
                   layer.report.expert_rows[e]);
  fmt::format_to(out, "\n  bytes from rank (row) to rank (column), dispatch and combine:\n");
  for (std::size_t r = 0; r < layer.report.ranks.size(); ++r) {
    fmt::format_to(out, "  {:>6}:", r);
    for (std::size_t p = 0; p < layer.report.dispatch[r].size(); ++p)
      fmt::format_to(
          out, "{:>12}",
          bytes(static_cast<double>(layer.report.dispatch[r][p].bytes_sent + layer.report.combine[r][p].bytes_sent)));
    fmt::format_to(out, "\n");
  }
}

}  // namespace

bool RunSummary::ok() const {
  return std::all_of(layers.begin(), layers.end(),
                     [](const Layer& l) { return !l.verification || l.verification->ok; });
}

std::string as_table(const RunSummary& s, bool stats) {
  std::string text;
  const Out out = std::back_inserter(text);
  const auto& shape = s.shape;
  fmt::format_to(out, "model     {} ({}): hidden {}, intermediate {}, {} experts, top-{}{}\n", s.model, s.family,
                 shape.hidden, shape.intermediate, shape.experts, shape.top_k,
                 shape.shared_intermediate > 0 ? ", shared expert" : "");
  fmt::format_to(out, "job       {} {}, {} {} each, {} tokens\n", s.ranks, s.ranks == 1 ? "rank" : "ranks", s.threads,
                 s.threads == 1 ? "thread" : "threads",
                 std::accumulate(s.tokens_per_rank.begin(), s.tokens_per_rank.end(), std::int64_t{0}));
  fmt::format_to(out, "how       strategy {}, placement {}, back end {} ({}), compute {}, dispatch {}, combine {}{}\n",
                 s.strategy, s.placement, s.backend, s.isa, s.compute, s.dispatch, s.combine,
                 s.reproducible ? ", reproducible" : "");
  for (const auto& layer : s.layers) {
    layer_table(out, layer);
    if (stats) stats_table(out, layer);
  }
  return text;
}

}  // namespace epmoe::cli
