#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

#include "choices.hpp"
#include "epmoe/core/error.hpp"
#include "epmoe/prepare_finalize/factory.hpp"
#include "run_options.hpp"

namespace epmoe::cli {
namespace {

void at_least(const char* flag, std::int64_t value, std::int64_t least) {
  if (value < least) throw ConfigError(fmt::format("{} {}: {} or more wanted", flag, value, least));
}

void at_most(const char* flag, std::int64_t value, std::int64_t most) {
  if (value > most) throw ConfigError(fmt::format("{} {}: {} or less wanted", flag, value, most));
}
constexpr std::int64_t kMostTokens = 1LL << 32U;  // of one rank; sums and byte counts stay far from 64 bits

std::vector<std::string_view> strategy_names() {
  std::vector<std::string_view> names;
  for (const auto& strategy : strategies()) names.push_back(strategy.name);
  return names;
}

}  // namespace

void add_flags(CLI::App& command, RunOptions& o) {
  command.add_option("MODEL_DIR", o.model_dir,
                     "Hugging Face checkpoint; without one, a small seeded Qwen3-MoE-shaped model in memory");
  command.add_option("--family", o.family, "read the checkpoint as this family, whatever its model_type");
  command.add_option("--layers", o.layers,
                     "MoE layers by their number in the model: 0, 3,5 or all (default: the first)");

  command.add_option("--input", o.input, "safetensors with `hidden_states` [tokens, hidden], F32, F16 or BF16")
      ->group("Tokens");
  command.add_option("--tokens", o.tokens, "random tokens, over all ranks (default 256)")->group("Tokens");
  command.add_option("--tokens-per-rank", o.tokens_per_rank, "how the rows are split over ranks, say 7,0,3")
      ->delimiter(',')
      ->group("Tokens");
  command.add_option("--seed", o.seed, "of random tokens and of the built-in model")
      ->group("Tokens")
      ->capture_default_str();

  command.add_option("--strategy", o.strategy, "local, allgather or alltoall (default: one rank local, else alltoall)")
      ->group("How");
  command.add_option("--placement", o.placement, "linear or round_robin (default: linear)")->group("How");
  command
      .add_option("--expert-map", o.expert_map,
                  "JSON: owner rank of each expert [0,1,…], or {\"owner\":[…],\"logical\":[…]} per slot, with replicas")
      ->group("How");
  command.add_option("--compute-dtype", o.compute_dtype, "auto, f32, bf16 or int8")
      ->group("How")
      ->capture_default_str();
  command.add_option("--dispatch-dtype", o.dispatch_dtype, "auto, f32, f16, bf16 or int8")
      ->group("How")
      ->capture_default_str();
  command.add_option("--combine-dtype", o.combine_dtype, "auto, f32 or bf16")->group("How")->capture_default_str();
  command.add_option("--chunk-size", o.chunk_size, "most rows per chunk of the experts stage, 0 = no chunks")
      ->group("How")
      ->capture_default_str();
  command.add_option("--pipeline", o.pipeline, "token slices in flight inside one call")
      ->group("How")
      ->capture_default_str();
  command.add_option("--micro-batches", o.micro_batches, "micro-batches of a step")
      ->group("How")
      ->capture_default_str();
  command.add_option("--shared-threshold", o.shared_threshold, "most tokens for shared experts to overlap")
      ->group("How")
      ->capture_default_str();
  command.add_flag("--reproducible", o.reproducible, "bitwise the same for any ranks, threads, chunks and strategy")
      ->group("How");
  command.add_option("--backend", o.backend, "auto, native, onednn or reference")->group("How")->capture_default_str();
  command.add_option("--isa", o.isa, "kernel set by name (default: the best for this CPU)")->group("How");
  command.add_option("--threads", o.threads, "threads per rank, 0 = its share of the cores")
      ->group("How")
      ->capture_default_str();
  command.add_option("--progress", o.progress, "poll")->group("How")->capture_default_str();
  command.add_option("--timeout", o.timeout, "seconds a rank may wait for another")
      ->group("How")
      ->capture_default_str();
  command.add_option("--repeat", o.repeat, "run each layer N times; times are means")
      ->group("How")
      ->capture_default_str();

  command
      .add_option("--output", o.output,
                  "safetensors: layers.{L}.moe_output, layers.{L}.topk_ids, layers.{L}.topk_weights")
      ->group("Results");
  command.add_option("--json", o.json, "what is printed, as data, to a file or - for stdout")->group("Results");
  command.add_flag("--stats", o.stats, "also print tokens per expert and bytes between ranks")->group("Results");
  command.add_option("--trace", o.trace, "not built yet")->group("");
  command.add_flag("--verify", o.verify, "compare with the f64 reference; exit 1 above the tolerance")
      ->group("Results");
}

std::vector<std::int64_t> parse_layer_list(const std::string& text) {
  std::vector<std::int64_t> layers;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    std::int64_t layer = 0;
    const auto [next, error] = std::from_chars(at, end, layer);
    if (error != std::errc{} || layer < 0 || (next != end && *next != ','))
      throw ConfigError(fmt::format("--layers {}: layer numbers separated by commas, or all, wanted", text));
    layers.push_back(layer);
    if (next == end) return layers;
    at = next + 1;
  }
}

void RunOptions::check() const {
  if (!strategy.empty())
    Choices{"--strategy", strategy_names(), {"auto", "low_latency", "hierarchical"}}.check(strategy);
  if (!placement.empty()) Choices{"--placement", {"linear", "round_robin"}, {}}.check(placement);
  Choices{"--compute-dtype", {"auto", "f32", "bf16", "int8"}, {}}.check(compute_dtype);
  Choices{"--dispatch-dtype", {"auto", "f32", "f16", "bf16", "int8"}, {"int8_g128", "fp8", "fp8_g128"}}.check(
      dispatch_dtype);
  Choices{"--combine-dtype", {"auto", "f32", "bf16"}, {"int8"}}.check(combine_dtype);
  Choices{"--backend", {"auto", "native", "onednn", "reference"}, {}}.check(backend);
  Choices{"--progress", {"poll"}, {"thread"}}.check(progress);
  if (!trace.empty()) throw ConfigError(fmt::format("--trace {}: not built yet", trace));
  if (micro_batches > 1) throw ConfigError(fmt::format("--micro-batches {}: not built yet; 1 is", micro_batches));
  at_least("--micro-batches", micro_batches, 1);
  at_least("--tokens", tokens.value_or(0), 0);
  at_most("--tokens", tokens.value_or(0), kMostTokens);
  for (const auto count : tokens_per_rank) {
    at_least("--tokens-per-rank", count, 0);
    at_most("--tokens-per-rank", count, kMostTokens);
  }
  at_least("--chunk-size", chunk_size, 0);
  at_least("--pipeline", pipeline, 1);
  at_least("--shared-threshold", shared_threshold, 0);
  at_least("--threads", threads, 0);
  at_most("--threads", threads, 1024);
  at_least("--repeat", repeat, 1);
  at_most("--repeat", repeat, 1'000'000'000);
  if (!(timeout > 0.0)) throw ConfigError(fmt::format("--timeout {}: seconds above 0 wanted", timeout));
  if (!json.empty() && json != "-" && json == output)
    throw ConfigError(fmt::format("--json and --output: both write {}", json));
  if (!layers.empty() && layers != "all") (void)parse_layer_list(layers);
  if (!input.empty() && tokens) throw ConfigError("--tokens and --input: the input says how many tokens there are");
  if (!family.empty() && model_dir.empty()) throw ConfigError("--family: a MODEL_DIR to read is wanted");
  if (!expert_map.empty() && !placement.empty())
    throw ConfigError(fmt::format("--expert-map and --placement {}: both say where experts are", placement));
  if (reproducible && combine_dtype != "auto" && combine_dtype != "f32")
    throw ConfigError(fmt::format("--reproducible: combines in f32, --combine-dtype {} found", combine_dtype));
}

}  // namespace epmoe::cli
