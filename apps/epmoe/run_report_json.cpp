#include <nlohmann/json.hpp>

#include "run_report.hpp"

namespace epmoe::cli {
namespace {

using Json = nlohmann::ordered_json;

Json spread(const RunReport::Spread& s) {
  return {{"min", s.min}, {"mean", s.mean}, {"max", s.max}};
}

template <class Value>
Json per_rank(const RunReport& report, Value value) {
  Json list = Json::array();
  for (const auto& rank : report.ranks) list.push_back(value(rank));
  return list;
}

Json traffic(const std::vector<std::vector<PeerTraffic>>& ranks) {
  Json matrix = Json::array();
  for (const auto& peers : ranks) {
    Json row = Json::array();
    for (const auto& peer : peers) row.push_back(peer.bytes_sent);
    matrix.push_back(row);
  }
  return matrix;
}

Json layer_json(const RunSummary::Layer& layer) {
  const auto& report = layer.report;
  Json phases;
  for (std::size_t p = 0; p < static_cast<std::size_t>(Phase::count); ++p) {
    auto phase = spread(report.phase(static_cast<Phase>(p)));
    phase["per_rank"] = per_rank(report, [p](const RankReport& r) { return r.seconds[p]; });
    phases[std::string(name(static_cast<Phase>(p)))] = phase;
  }
  auto seconds = spread(report.total());
  seconds["per_rank"] = per_rank(report, [](const RankReport& r) { return r.total_seconds; });
  Json json = {{"layer", layer.index},
               {"experts", layer.shape.experts},
               {"top_k", layer.shape.top_k},
               {"hidden", layer.shape.hidden},
               {"intermediate", layer.shape.intermediate},
               {"load_s", layer.load_seconds},
               {"bytes_read_per_rank", per_rank(report, [](const RankReport& r) { return r.bytes_read; })},
               {"packed_bytes_per_rank", per_rank(report, [](const RankReport& r) { return r.packed_bytes; })},
               {"seconds", seconds},
               {"phase_s", phases},
               {"rows_received_per_rank", per_rank(report, [](const RankReport& r) { return r.rows_received; })},
               {"entries_per_rank", per_rank(report, [](const RankReport& r) { return r.entries_computed; })},
               {"chunks_per_rank", per_rank(report, [](const RankReport& r) { return r.chunks; })},
               {"bytes_sent_per_rank", per_rank(report, [](const RankReport& r) { return r.bytes_sent; })},
               {"tokens_per_expert", report.expert_rows},
               {"dispatch_bytes", traffic(report.dispatch)},
               {"combine_bytes", traffic(report.combine)}};
  if (layer.verification) {
    const auto& v = *layer.verification;
    json["verify"] = {
        {"ok", v.ok}, {"error", v.error}, {"worst_row", v.worst_row}, {"tolerance", v.tolerance}, {"drift", v.drift}};
  }
  return json;
}

}  // namespace

std::string as_json(const RunSummary& s) {
  Json json = {{"command", "run"},
               {"version", EPMOE_VERSION},
               {"model", s.model},
               {"family", s.family},
               {"ranks", s.ranks},
               {"threads", s.threads},
               {"tokens_per_rank", s.tokens_per_rank},
               {"strategy", s.strategy},
               {"placement", s.placement},
               {"backend", s.backend},
               {"isa", s.isa},
               {"compute_dtype", s.compute},
               {"dispatch_dtype", s.dispatch},
               {"combine_dtype", s.combine},
               {"reproducible", s.reproducible},
               {"repeat", s.repeat},
               {"header_bytes_read", s.header_bytes},
               {"ok", s.ok()}};
  json["layers"] = Json::array();
  for (const auto& layer : s.layers) json["layers"].push_back(layer_json(layer));
  return json.dump(2) + "\n";
}

}  // namespace epmoe::cli
