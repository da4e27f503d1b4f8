#include "bench_peer.hpp"

#include <fmt/format.h>

#include <cmath>

namespace epmoe::cli {
namespace {

/// A value that the answer must have.
template <class T>
T wanted(const PeerProcess& process, const nlohmann::json& answer, const char* key) {
  try {
    return answer.at(key).get<T>();
  } catch (const nlohmann::json::exception&) {
    process.fail(fmt::format("found {}, wanted \"{}\" in it", answer.dump(), key));
  }
}

double positive(const PeerProcess& process, const nlohmann::json& answer, const char* key) {
  const auto value = wanted<double>(process, answer, key);
  if (!(value > 0.0 && std::isfinite(value))) process.fail(fmt::format("{} {}: above 0 wanted", key, value));
  return value;
}

}  // namespace

std::unique_ptr<PeerContender> PeerContender::make(PeerProcess& process, const std::string& format,
                                                   const MoeConfig& shape, std::uint64_t seed, std::string* refusal) {
  const nlohmann::json answer = process.ask({{"ask", "layer"},
                                             {"format", format},
                                             {"hidden", shape.hidden},
                                             {"intermediate", shape.intermediate},
                                             {"experts", shape.experts},
                                             {"seed", seed}});
  if (answer.contains("refused")) {
    *refusal = wanted<std::string>(process, answer, "refused");
    return nullptr;
  }
  std::unique_ptr<PeerContender> peer(new PeerContender(process));
  peer->name_ = wanted<std::string>(process, answer, "name");
  peer->isa_ = wanted<std::string>(process, answer, "isa");
  peer->expert_bytes_ = positive(process, answer, "expert_bytes");
  return peer;
}

std::string PeerContender::prepare(const BenchBatches& batches, const SpotCheck& /*check*/,
                                   const ExecutionContext& context) {
  checked_ = true;
  for (std::size_t s = 0; s < batches.sets.size(); ++s) {
    const ExpertBatch& batch = batches.sets[s].batch;
    const auto tokens = batch.rows();
    const nlohmann::json answer = process_.ask({{"ask", "batch"},
                                                {"set", s},
                                                {"tokens", tokens},
                                                {"top_k", batch.routing.entries() / tokens},
                                                {"threads", context.executor->workers()},
                                                {"ids", batch.routing.logical_expert}});
    if (answer.contains("wrong")) return wanted<std::string>(process_, answer, "wrong");
    checked_ = wanted<bool>(process_, answer, "checked") && checked_;
  }
  return {};
}

void PeerContender::run(std::size_t set, BenchSample& sample, const ExecutionContext& /*context*/) {
  sample.seconds = positive(process_, process_.ask({{"ask", "run"}, {"set", set}}), "seconds");
}

}  // namespace epmoe::cli
