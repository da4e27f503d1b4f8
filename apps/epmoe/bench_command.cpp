#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>

#include "bench_experts.hpp"
#include "bench_formats.hpp"
#include "choices.hpp"
#include "commands.hpp"
#include "epmoe/checkpoint/model_table.hpp"
#include "epmoe/core/error.hpp"
#include "epmoe/experts/experts.hpp"
#include "job.hpp"

namespace epmoe::cli {
namespace {

void in_range(const char* flag, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least) throw ConfigError(fmt::format("{} {}: {} or more wanted", flag, value, least));
  if (value > most) throw ConfigError(fmt::format("{} {}: {} or less wanted", flag, value, most));
}

template <class T>
void each_once(const char* flag, const std::vector<T>& values) {
  std::set<T> seen;
  for (const T& value : values)
    if (!seen.insert(value).second) throw ConfigError(fmt::format("{}: {} is there twice", flag, value));
}

void check_names(const Choices& choices, const std::vector<std::string>& values) {
  for (const std::string& value : values) choices.check(value);
  each_once(std::string(choices.flag).c_str(), values);
}

}  // namespace

void BenchExpertsOptions::check() const {
  Choices{"bench", {"experts"}, {"step", "comm", "overlap"}}.check(what);
  std::vector<std::string_view> known_formats, known_backends;
  for (const BenchFormat& format : bench_formats()) known_formats.push_back(format.name);
  for (const BackendInfo& backend : epmoe::backends()) known_backends.push_back(backend.name);
  check_names({"--formats", known_formats, {}}, formats);
  check_names({"--backends", known_backends, {}}, backends);
  check_names({"--skew", {"uniform", "zipf"}, {}}, skews);
  each_once("--isa", isas);
  each_once("--tokens", tokens);
  each_once("--threads", threads);
  for (const auto count : tokens) in_range("--tokens", count, 1, 1 << 20);
  for (const auto count : threads) in_range("--threads", count, 1, 1024);
  in_range("--repeats", repeats, 1, 1'000'000);
  if (model.empty())
    for (const auto& [flag, value] : {std::pair{"--hidden", hidden}, std::pair{"--intermediate", intermediate},
                                      std::pair{"--experts", experts}, std::pair{"--topk", top_k}})
      if (value == 0)
        throw ConfigError(fmt::format("bench experts: --model, or {} beside the other sizes, wanted", flag));
  if (!isas.empty() && std::find(backends.begin(), backends.end(), "native") == backends.end())
    throw ConfigError(
        fmt::format("--isa {}: chooses kernels of the native back end, which --backends leaves out", isas.front()));
  ExpertsConfig any;
  any.shape = shape();
  any.local_experts = any.shape.experts;
  for (const BackendInfo& backend : epmoe::backends())
    if (backend.name == "native")
      for (const std::string& isa : isas) {
        any.isa = isa;
        if (const Verdict verdict = backend.supports(any); !verdict)
          throw ConfigError(fmt::format("--isa {}: {}", isa, verdict.reason));
      }
}

MoeConfig BenchExpertsOptions::shape() const {
  MoeConfig shape;
  if (!model.empty()) {
    const checkpoint::ModelShape& known = checkpoint::find_model(model);
    shape.hidden = known.hidden;
    shape.intermediate = known.intermediate;
    shape.experts = known.experts;
    shape.top_k = known.top_k;
  }
  if (hidden != 0) shape.hidden = hidden;
  if (intermediate != 0) shape.intermediate = intermediate;
  if (experts != 0) shape.experts = experts;
  if (top_k != 0) shape.top_k = top_k;
  shape.validate();
  return shape;
}

Command add_bench(CLI::App& app) {
  auto* command = app.add_subcommand("bench", "Measure a part against the machine's limits");
  const auto o = std::make_shared<BenchExpertsOptions>();
  const auto list = [&](const char* flag, auto& values, const char* help) {
    command->add_option(flag, values, help)->delimiter(',')->capture_default_str();
  };
  command->add_option("WHAT", o->what, "experts: the grouped GEMM of one process")->required();
  command->add_option("--model", o->model, "shape of a known model, say qwen3-30b-a3b");
  command->add_option("--hidden", o->hidden, "hidden size, in place of the model's");
  command->add_option("--intermediate", o->intermediate, "intermediate size of an expert");
  command->add_option("--experts", o->experts, "experts of the layer");
  command->add_option("--topk", o->top_k, "experts of a token");
  list("--tokens", o->tokens, "tokens of a call");
  list("--skew", o->skews, "uniform, zipf: how tokens spread over experts");
  list("--formats", o->formats, "number formats of the weights");
  list("--threads", o->threads, "threads (default: this process's share of the cores)");
  list("--backends", o->backends, "native, onednn, onednn_one_by_one, onednn_side_by_side, reference");
  list("--isa", o->isas, "kernel sets of the native back end to compare (default: the best)");
  command->add_option("--peer", o->peers, "command of another program to measure in turn, say scripts/peers/ggml.sh")
      ->take_all();
  command->add_option("--repeats", o->repeats, "samples of each")->capture_default_str();
  command->add_option("--seed", o->seed, "of weights, rows and routing")->capture_default_str();
  command->add_option("--json", o->json, "one JSON object a line, to a file or - for stdout");
  return [o](Job& job) { return bench_experts(job, *o); };
}

}  // namespace epmoe::cli
