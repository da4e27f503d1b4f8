#pragma once
#include "prepare_finalize/strategy.hpp"

namespace epmoe {

/// Each token once to every rank that owns at least one of its experts, in messages of its own to every peer.
class AllToAll final : public Strategy {
 public:
  AllToAll(std::shared_ptr<comm::ExpertGroup> group, const PrepareFinalizeConfig& config)
      : Strategy(std::move(group), config, false) {}
  static Verdict supports(const comm::ExpertGroup& group, const PrepareFinalizeConfig& config);
  [[nodiscard]] std::string_view name() const override { return "alltoall"; }

 protected:
  void dispatch(Call& call, const PrepareInput& input, const ExecutionContext& context) const override;
  [[nodiscard]] std::vector<std::int64_t> home_begin(const Call& call, int owner, std::int64_t capacity) const override;
};

}  // namespace epmoe
