/// The way home, the same for all strategies.
#include <fmt/format.h>

#include <exception>
#include <utility>

#include "prepare_finalize/bad_input.hpp"
#include "prepare_finalize/parallel_rows.hpp"
#include "prepare_finalize/slots.hpp"
#include "prepare_finalize/strategy.hpp"

namespace epmoe {

std::int64_t combine_row(const Call& call, int owner, std::int64_t row) {
  if (!call.terms().config.reproducible) return row;
  const auto first = static_cast<std::size_t>(call.plan.rank_begin[static_cast<std::size_t>(owner)]);
  return call.plan.row_entry_begin[first + static_cast<std::size_t>(row)] - call.plan.row_entry_begin[first];
}

comm::Failure Strategy::check_output(const Call& call, const ExpertOutput& output,
                                     const ExecutionContext& context) const {
  if (output.failure != ErrorCode::none) return failure(output.failure, comm::MessageError::stage_failed);
  const auto wanted = call.output_begin.back();
  const auto& rows = output.rows;
  if (wanted == 0 && rows.rows == 0) return {};
  if (rows.rows == wanted && rows.cols == config().hidden && rows.dtype == DType::f32 && rows.data != nullptr)
    return {};
  context.log(LogLevel::error, fmt::format("rank {}: combine: expert output is {}, wanted [{}, {}] f32", call.rank(),
                                           describe(rows), wanted, config().hidden));
  return bad_input(BadField::output, rows.rows, call.rank());
}

/// Rounds the part's outputs into messages, this rank's own into the place where they would arrive. False if there is
/// no memory for them.
bool Strategy::answer(Call& call, const ExpertOutput& output, bool last, const ExecutionContext& context) const {
  auto& exchange = call.exchange();
  const auto& format = terms_->combine_format;
  const auto ranks = call.ranks();
  const auto rows_from = [&](int source) {
    const auto s = static_cast<std::size_t>(source);
    return call.output_begin[s + 1] - call.output_begin[s];
  };
  std::vector<comm::SlotPool::Slot> slots(static_cast<std::size_t>(ranks));
  try {
    for (int source = 0; source < ranks; ++source)
      if (source != call.rank() && exchange.has_rows_to_answer(source))
        slots[static_cast<std::size_t>(source)] =
            take_slot(*terms_->group, comm::kBlockBytes + rows_from(source) * format.row_bytes());
  } catch (const Error& error) {
    context.log(LogLevel::error, error.what());
    return false;
  }
  for (int i = 1; i <= ranks; ++i) {
    const int source = (call.rank() + i) % ranks;
    const bool own = source == call.rank();
    if (exchange.has_rows_to_answer(source)) {
      auto& slot = slots[static_cast<std::size_t>(source)];
      const auto first_row = call.output_begin[static_cast<std::size_t>(source)];
      {
        const PhaseTimer timer(context, Phase::quantize);
        for_row_blocks(context, rows_from(source), [&](std::int64_t first, std::int64_t past) {
          for (auto r = first; r < past; ++r)
            format.encode(reinterpret_cast<const float*>(output.rows.row(first_row + r)),
                          own ? exchange.own_home_row(r) : slot.data() + comm::kBlockBytes + r * format.row_bytes());
        });
      }
      exchange.answer(source, std::move(slot), rows_from(source));
    }
    if (last && !own) exchange.finish(source);
  }
  if (last) exchange.set_finished();
  return true;
}

Prepared Strategy::next_part(Receipt& receipt, const ExpertOutput& output, const ExecutionContext& context) {
  auto& call = checked(receipt, "next_part");
  auto& exchange = call.exchange();
  if (!exchange.more()) throw InputError("next_part: found a receipt without further parts");
  auto failed = check_output(call, output, context);
  if (!failed.any() && !answer(call, output, false, context))
    failed = failure(ErrorCode::internal, comm::MessageError::stage_failed);
  if (failed.any()) {
    exchange.drain(failed);
    call.output_begin.assign(call.output_begin.size(), 0);
    return call.empty_part();
  }
  call.wait_for_part(context);
  call.report(context);
  return call.take_part();
}

std::unique_ptr<PendingCombine> Strategy::finalize_async(Receipt receipt, const Routing& routing,
                                                         const ExpertOutput& output, MatrixView y,
                                                         const ExecutionContext& context) {
  auto& exchange = checked(receipt, "finalize").exchange();
  auto failed = check_output(*receipt.state<ReceiptState>().call, output, context);
  if (exchange.more() && !failed.any()) throw InputError("finalize: found a receipt with parts left, wanted next_part");
  auto call = std::move(receipt.state<ReceiptState>().call);
  receipt.release();
  const bool y_fits = y.dtype == DType::f32 && y.rows == call->tokens && y.cols == config().hidden &&
                      (y.rows == 0 || (y.data != nullptr && y.stride >= y.cols));
  if (!failed.any() && (!y_fits || routing.tokens() != call->tokens)) {
    context.log(LogLevel::error,
                fmt::format("rank {}: combine: y is {} and routing has {} rows, wanted [{}, {}] f32", call->rank(),
                            describe(y), routing.tokens(), call->tokens, config().hidden));
    failed = bad_input(BadField::y, y.rows, call->rank());
  }
  if (!failed.any() && !exchange.draining() && !answer(*call, output, true, context))
    failed = failure(ErrorCode::internal, comm::MessageError::stage_failed);
  if (failed.any()) exchange.drain(failed);
  exchange.advance();
  call->report(context);
  return make_pending_combine(std::move(call), y, context);
}

}  // namespace epmoe
