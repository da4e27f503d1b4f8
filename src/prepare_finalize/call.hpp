#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "epmoe/prepare_finalize/exchange_plan.hpp"
#include "epmoe/prepare_finalize/prepare_finalize.hpp"
#include "prepare_finalize/exchange.hpp"

namespace epmoe {

/// What the objects of one strategy share with the calls they have under way.
struct StrategyTerms {
  std::shared_ptr<comm::ExpertGroup> group;
  PrepareFinalizeConfig config;
  DispatchRowFormat dispatch_format;
  CombineRowFormat combine_format;
  bool rows_for_all = false;  ///< dispatch messages carry rows that are not for this rank
  [[nodiscard]] std::uint64_t id() const { return reinterpret_cast<std::uintptr_t>(this); }
};

/// A call under way. Owned in turn by the pending dispatch, the receipt and the pending combine; dropped by any of
/// them before its end, it answers its peers with AbandonedError in the background.
class Call {
 public:
  /// Takes the group's next call number; `failure` says what is wrong with this rank's input.
  Call(std::shared_ptr<const StrategyTerms> terms, const PrepareInput& input, const comm::Failure& failure);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  [[nodiscard]] Exchange& exchange() { return *exchange_; }
  [[nodiscard]] const StrategyTerms& terms() const { return *terms_; }
  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] int rank() const { return terms_->group->rank(); }
  [[nodiscard]] int ranks() const { return terms_->group->size(); }
  [[nodiscard]] bool failed_input() const { return failed_input_; }

  /// Waits until the current part's rows are here / until nothing is left to do.
  void wait_for_part(const ExecutionContext& context);
  void wait_for_end(std::string_view phase, const ExecutionContext& context);
  /// Nothing of the call is left; what follows needs no answer.
  void end();
  /// Tells the observer what was sent and received since the last time.
  void report(const ExecutionContext& context);
  [[noreturn]] void throw_failure(const comm::Failure& failure, std::string_view phase) const;

  /// The rows of the part that has arrived. Throws what went wrong with the communication; the peers learn of it.
  Prepared take_part();
  /// No rows, and no further part.
  [[nodiscard]] Prepared empty_part() const;

  std::shared_ptr<const Placement> placement;
  ExchangePlan plan;  ///< empty if the input is bad
  std::int64_t tokens = 0;
  std::int64_t layer = -1;
  std::uint64_t step = 0;
  std::vector<std::int64_t> output_begin;  ///< [ranks + 1]: output rows of the current part, by source

 private:
  std::shared_ptr<const StrategyTerms> terms_;
  std::uint64_t number_;
  bool failed_input_;
  bool ended_ = false;
  std::unique_ptr<Exchange> exchange_;
};

struct ReceiptState final : Receipt::State {
  explicit ReceiptState(std::unique_ptr<Call> c) : call(std::move(c)) {}
  std::unique_ptr<Call> call;
};

/// Both pending halves of a call, the same for every strategy.
std::unique_ptr<PendingDispatch> make_pending_dispatch(std::unique_ptr<Call> call, const ExecutionContext& context);
std::unique_ptr<PendingCombine> make_pending_combine(std::unique_ptr<Call> call, MatrixView y,
                                                     const ExecutionContext& context);

}  // namespace epmoe
