/// The two pending halves of a call.
#include <exception>
#include <utility>

#include "prepare_finalize/call.hpp"
#include "prepare_finalize/home_sum.hpp"

namespace epmoe {
namespace {

class CallDispatch final : public PendingDispatch {
 public:
  CallDispatch(std::unique_ptr<Call> call, const ExecutionContext& context)
      : call_(std::move(call)), context_(context) {}

  bool poll() override {
    if (call_ == nullptr) return true;
    call_->terms().group->engine().poll();
    return call_->exchange().part_arrived();
  }
  void hook() override {
    if (call_ != nullptr) call_->wait_for_part(context_);
  }
  Prepared receive() override {
    if (call_ == nullptr) throw InputError("receive: this dispatch was received before");
    hook();
    auto call = std::move(call_);  // an error from here on ends the call
    call->report(context_);
    if (const auto failure = call->exchange().dispatch_failure(); failure.any()) {
      call->wait_for_end("dispatch", context_);
      call->end();
      call->throw_failure(failure, "dispatch");
    }
    auto part = call->take_part();
    const auto number = call->number();
    const auto owner = call->terms().id();
    part.receipt = Receipt(owner, number, std::make_unique<ReceiptState>(std::move(call)));
    return part;
  }

 private:
  std::unique_ptr<Call> call_;
  ExecutionContext context_;
};

class CallCombine final : public PendingCombine {
 public:
  CallCombine(std::unique_ptr<Call> call, MatrixView y, const ExecutionContext& context)
      : call_(std::move(call)), y_(y), context_(context) {}

  bool poll() override {
    if (call_ == nullptr) return true;
    call_->terms().group->engine().poll();
    return call_->exchange().advance();
  }
  void hook() override {
    if (call_ != nullptr) call_->wait_for_end("combine", context_);
  }
  void receive() override {
    if (error_ != nullptr) std::rethrow_exception(error_);
    if (call_ == nullptr) return;
    hook();
    const auto call = std::move(call_);
    call->report(context_);
    call->end();
    try {
      finish(*call);
    } catch (...) {
      error_ = std::current_exception();
      throw;
    }
  }

 private:
  void finish(Call& call) const {
    auto& exchange = call.exchange();
    exchange.throw_fault();
    if (const auto failure = exchange.combine_failure(); failure.any()) call.throw_failure(failure, "combine");
    const PhaseTimer timer(context_, Phase::combine);
    const auto& terms = call.terms();
    sum_home_rows(
        call.plan, terms.combine_format, terms.config.reproducible, terms.config.top_k,
        [&](int rank, std::int64_t row) { return exchange.home_row(rank, row); }, y_.as<float, Token, Hidden>(),
        context_);
  }

  std::unique_ptr<Call> call_;
  MatrixView y_;
  ExecutionContext context_;
  std::exception_ptr error_;
};

}  // namespace

std::unique_ptr<PendingDispatch> make_pending_dispatch(std::unique_ptr<Call> call, const ExecutionContext& context) {
  return std::make_unique<CallDispatch>(std::move(call), context);
}

std::unique_ptr<PendingCombine> make_pending_combine(std::unique_ptr<Call> call, MatrixView y,
                                                     const ExecutionContext& context) {
  return std::make_unique<CallCombine>(std::move(call), y, context);
}

}  // namespace epmoe
