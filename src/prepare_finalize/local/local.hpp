#pragma once
#include "prepare_finalize/strategy.hpp"

namespace epmoe {

/// One rank: nothing travels, but rows are rounded as if they did.
class Local final : public Strategy {
 public:
  Local(std::shared_ptr<comm::ExpertGroup> group, const PrepareFinalizeConfig& config)
      : Strategy(std::move(group), config, false) {}
  static Verdict supports(const comm::ExpertGroup& group, const PrepareFinalizeConfig& config);
  [[nodiscard]] std::string_view name() const override { return "local"; }

 protected:
  void dispatch(Call& call, const PrepareInput& input, const ExecutionContext& context) const override;
  [[nodiscard]] std::vector<std::int64_t> home_begin(const Call& call, int owner, std::int64_t capacity) const override;
};

}  // namespace epmoe
