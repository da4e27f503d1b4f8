#pragma once
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "epmoe/epmoe.hpp"
#include "epmoe/prepare_finalize/exchange_plan.hpp"
#include "epmoe/route/scripted_router.hpp"
#include "support/world.hpp"

/// Layers, inputs and outputs for tests over ranks.
namespace epmoe::test {

/// Tokens of this rank when `all` are split in order, the first (all mod ranks) ranks getting one more.
inline TokenRange my_tokens(std::int64_t all) {
  const auto size = world_size();
  const auto base = all / size, more = all % size;
  const auto rank = world_rank();
  return {rank * base + std::min<std::int64_t>(rank, more), base + (rank < more ? 1 : 0)};
}

/// Rows of every rank, in rank order, on every rank: what a test compares with one process's answer.
inline std::vector<float> gather_rows(const comm::Communicator& comm, const std::vector<float>& mine,
                                      const ExecutionContext& context) {
  std::vector<float> all;
  for (const auto& part : comm.all_gather(std::as_bytes(std::span(mine)), context, "test rows")) {
    const auto* values = reinterpret_cast<const float*>(part.data());
    all.insert(all.end(), values, values + part.size() / sizeof(float));
  }
  return all;
}

inline MoeConfig small_config(std::int64_t hidden, std::int64_t intermediate, std::int64_t experts, std::int64_t top_k,
                              std::int64_t shared = 0) {
  MoeConfig config;
  config.hidden = hidden;
  config.intermediate = intermediate;
  config.experts = experts;
  config.top_k = top_k;
  config.routing.renormalize = true;
  config.shared_intermediate = shared;
  config.shared_gate = shared > 0;
  return config;
}

}  // namespace epmoe::test
