#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace epmoe::cli {

/// The flags of `epmoe run` as typed; empty or unset where not given.
struct RunOptions {
  std::string model_dir;
  std::string family;
  std::string layers;  ///< "", "all" or "3,5"
  std::string input;
  std::optional<std::int64_t> tokens;
  std::vector<std::int64_t> tokens_per_rank;
  std::uint64_t seed = 0;
  std::string output;
  std::string strategy;
  std::string placement;
  std::string expert_map;
  std::string compute_dtype = "auto", dispatch_dtype = "auto", combine_dtype = "auto";
  std::int64_t chunk_size = 16384;  ///< 0: chunking off
  std::int64_t pipeline = 1;
  std::int64_t micro_batches = 1;
  std::int64_t shared_threshold = 256;
  bool reproducible = false;
  std::string backend = "auto";
  std::string isa;
  int threads = 0;  ///< 0: this rank's share of the cores
  std::string progress = "poll";
  double timeout = 120.0;
  std::int64_t repeat = 1;
  bool stats = false;
  std::string trace;
  std::string json;
  bool verify = false;

  /// Everything that can be said without a model and without other ranks. Throws ConfigError.
  void check() const;
};

void add_flags(CLI::App& command, RunOptions& options);

/// "3,5" as numbers; ConfigError on anything else.
std::vector<std::int64_t> parse_layer_list(const std::string& text);

}  // namespace epmoe::cli
