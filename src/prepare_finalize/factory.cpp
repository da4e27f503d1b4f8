#include "epmoe/prepare_finalize/factory.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "prepare_finalize/allgather/allgather.hpp"
#include "prepare_finalize/alltoall/alltoall.hpp"
#include "prepare_finalize/local/local.hpp"

namespace epmoe {
namespace {

template <class S>
std::unique_ptr<PrepareFinalize> make(std::shared_ptr<comm::ExpertGroup> group, const PrepareFinalizeConfig& config,
                                      const ExecutionContext&) {
  return std::make_unique<S>(std::move(group), config);
}

void check_same(const comm::ExpertGroup& group, std::string_view strategy, const PrepareFinalizeConfig& config,
                const ExecutionContext& context) {
  const auto number = [](auto value) { return fmt::format("{}", value); };
  const std::vector<std::pair<std::string, std::string>> fields{
      {"strategy", std::string(strategy)},
      {"hidden", number(config.hidden)},
      {"top_k", number(config.top_k)},
      {"experts", number(config.experts)},
      {"dispatch", std::string(name(config.dispatch))},
      {"combine", std::string(name(config.combine))},
      {"reproducible", number(config.reproducible)},
      {"router_weight_on_input", number(config.router_weight_on_input)},
      {"max_num_tokens_per_rank", number(config.max_num_tokens_per_rank)}};
  comm::check_same(group.communicator(), fields, context, "prepare/finalize settings");
}

std::string known_names() {
  std::string names = "auto";
  for (const auto& info : strategies()) names += fmt::format(", {}", info.name);
  return names;
}

}  // namespace

std::vector<StrategyInfo> strategies() {
  return {{"local", "one rank: nothing travels", &Local::supports, &make<Local>},
          {"alltoall", "throughput: each token once to every rank that owns one of its experts", &AllToAll::supports,
           &make<AllToAll>},
          {"allgather", "baseline, few ranks: all rows to all ranks", &AllGather::supports, &make<AllGather>}};
}

std::unique_ptr<PrepareFinalize> make_prepare_finalize(std::string_view name, std::shared_ptr<comm::ExpertGroup> group,
                                                       const PrepareFinalizeConfig& config,
                                                       const ExecutionContext& context) {
  check_same(*group, name, config, context);
  config.validate();
  for (const auto& info : strategies()) {
    if (name != info.name && (name != "auto" || info.name == "allgather")) continue;
    const auto verdict = info.supports(*group, config);
    if (verdict) return info.make(std::move(group), config, context);
    if (name != "auto") throw ConfigError(verdict.reason);
    context.log(LogLevel::debug, verdict.reason);
  }
  throw ConfigError(fmt::format("strategy: found \"{}\", wanted one of {}", name, known_names()));
}

}  // namespace epmoe
