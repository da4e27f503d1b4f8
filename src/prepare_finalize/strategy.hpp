#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "prepare_finalize/call.hpp"

namespace epmoe {

/// What all strategies share: checks, receipts, parts, the way home. A strategy adds how rows reach their owners
/// (dispatch.cpp) and which of them come home in which message (combine.cpp).
class Strategy : public PrepareFinalize {
 public:
  Strategy(std::shared_ptr<comm::ExpertGroup> group, const PrepareFinalizeConfig& config, bool rows_for_all);

  [[nodiscard]] std::optional<std::int64_t> max_num_tokens_per_rank() const override;
  [[nodiscard]] int num_dispatchers() const override { return terms_->group->size(); }
  [[nodiscard]] bool supports_async() const override { return true; }
  [[nodiscard]] OutputRows output_rows() const override {
    return config().reproducible ? OutputRows::per_entry : OutputRows::per_row;
  }
  [[nodiscard]] const PrepareFinalizeConfig& config() const override { return terms_->config; }
  void post_init_setup(const ExpertsTraits& experts) override;
  std::unique_ptr<PendingDispatch> prepare_async(const PrepareInput& input, const ExecutionContext& context) override;
  Prepared next_part(Receipt& receipt, const ExpertOutput& output, const ExecutionContext& context) override;
  std::unique_ptr<PendingCombine> finalize_async(Receipt receipt, const Routing& routing, const ExpertOutput& output,
                                                 MatrixView y, const ExecutionContext& context) override;

 protected:
  /// Posts receives, writes this rank's rows into messages and sends the first ones. With bad input (an empty plan)
  /// the same messages go out, without rows.
  virtual void dispatch(Call& call, const PrepareInput& input, const ExecutionContext& context) const = 0;
  /// Combine rows that come home from `owner` per dispatch message of at most `capacity` rows: message p's are
  /// [begin[p], begin[p + 1]).
  [[nodiscard]] virtual std::vector<std::int64_t> home_begin(const Call& call, int owner,
                                                             std::int64_t capacity) const = 0;
  [[nodiscard]] const StrategyTerms& terms() const { return *terms_; }

 private:
  [[nodiscard]] comm::Failure check_output(const Call& call, const ExpertOutput& output,
                                           const ExecutionContext& context) const;
  Call& checked(Receipt& receipt, std::string_view what) const;
  bool answer(Call& call, const ExpertOutput& output, bool last, const ExecutionContext& context) const;
  [[nodiscard]] comm::Failure failure(ErrorCode code, comm::MessageError detail) const {
    return {code, detail, terms_->group->rank(), 0, 0};
  }
  std::shared_ptr<const StrategyTerms> terms_;
};

/// Writes the planned rows for a destination into its messages, which begin at `messages` and carry at most `capacity`
/// rows each.
void write_planned_rows(const Call& call, int destination, const PrepareInput& input, std::byte* messages,
                        std::int64_t capacity, const ExecutionContext& context);
/// Position of an owner's row among its combine rows.
std::int64_t combine_row(const Call& call, int owner, std::int64_t row);

}  // namespace epmoe
