#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "epmoe/prepare_finalize/prepare_finalize.hpp"

namespace epmoe {

/// One row of the one table of strategies; --help, errors and tests read it.
struct StrategyInfo {
  std::string_view name;
  std::string_view purpose;
  Verdict (*supports)(const comm::ExpertGroup& group, const PrepareFinalizeConfig& config);
  std::unique_ptr<PrepareFinalize> (*make)(std::shared_ptr<comm::ExpertGroup> group,
                                           const PrepareFinalizeConfig& config, const ExecutionContext& context);
};
std::vector<StrategyInfo> strategies();

/// Collective: compares `config` over the group (ConfigError naming field and ranks, the same on all). `name` "auto"
/// tries "local", then "alltoall" and logs each refusal at debug level. An unknown name is answered with the known.
std::unique_ptr<PrepareFinalize> make_prepare_finalize(std::string_view name, std::shared_ptr<comm::ExpertGroup> group,
                                                       const PrepareFinalizeConfig& config,
                                                       const ExecutionContext& context);

}  // namespace epmoe
