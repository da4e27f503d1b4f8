#pragma once
#include "prepare_finalize/strategy.hpp"

namespace epmoe {

/// Every rank gets all rows and computes those that have experts there; the results go home as in alltoall.
class AllGather final : public Strategy {
 public:
  AllGather(std::shared_ptr<comm::ExpertGroup> group, const PrepareFinalizeConfig& config)
      : Strategy(std::move(group), config, true) {}
  static Verdict supports(const comm::ExpertGroup& group, const PrepareFinalizeConfig& config);
  [[nodiscard]] std::string_view name() const override { return "allgather"; }

 protected:
  void dispatch(Call& call, const PrepareInput& input, const ExecutionContext& context) const override;
  [[nodiscard]] std::vector<std::int64_t> home_begin(const Call& call, int owner, std::int64_t capacity) const override;
};

}  // namespace epmoe
