#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "epmoe/core/moe_config.hpp"

namespace epmoe::cli {

/// Flags of `epmoe bench experts`.
struct BenchExpertsOptions {
  std::string what;   ///< which benchmark
  std::string model;  ///< a known shape, or "custom" with the four below
  std::int64_t hidden = 0, intermediate = 0, experts = 0, top_k = 0;
  std::vector<std::int64_t> tokens{1, 8, 64, 512, 2048};
  std::vector<std::string> skews{"uniform"};
  std::vector<std::string> formats{"bf16", "int8"};
  std::vector<std::int64_t> threads;  ///< empty: this process's share of the cores
  std::vector<std::string> backends{"native", "onednn"};
  std::vector<std::string> isas;   ///< of the native back end; empty: the best for this CPU
  std::vector<std::string> peers;  ///< commands of programs that are measured beside; see bench_peer.hpp
  std::int64_t repeats = 15;
  std::uint64_t seed = 0;
  std::string json;

  /// Throws ConfigError naming flag, value found and what is wanted.
  void check() const;
  /// The layer's shape: the model's, with what was given explicitly in its place.
  [[nodiscard]] MoeConfig shape() const;
  [[nodiscard]] std::string model_name() const { return model.empty() ? "custom" : model; }
};

}  // namespace epmoe::cli
