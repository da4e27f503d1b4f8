#include "prepare_finalize/call.hpp"

#include <utility>

#include "prepare_finalize/bad_input.hpp"
#include "prepare_finalize/dispatch_rows.hpp"

namespace epmoe {
namespace {

/// Done when the current part's rows are here.
class PartArrived final : public comm::Operation {
 public:
  explicit PartArrived(Exchange& exchange) : exchange_(&exchange) {}
  bool advance() override {
    exchange_->advance();
    return exchange_->part_arrived();
  }
  [[nodiscard]] std::vector<int> waiting_for() const override { return exchange_->waiting_for(); }

 private:
  Exchange* exchange_;
};

}  // namespace

Call::Call(std::shared_ptr<const StrategyTerms> terms, const PrepareInput& input, const comm::Failure& failure)
    : placement(input.placement),
      tokens(input.x.rows),
      layer(input.layer),
      step(input.plan->step),
      terms_(std::move(terms)),
      number_(terms_->group->begin_call()),
      failed_input_(failure.any()) {
  exchange_ = std::make_unique<Exchange>(
      *terms_->group,
      Exchange::Terms{number_, static_cast<std::uint32_t>(placement->epoch()), static_cast<std::int32_t>(layer), step,
                      terms_->dispatch_format.row_bytes() / comm::kBlockBytes,
                      terms_->combine_format.row_bytes() / comm::kBlockBytes},
      failure);
  plan.rank_begin.assign(static_cast<std::size_t>(ranks()) + 1, 0);
  plan.row_entry_begin.assign(1, 0);
  terms_->group->engine().attach(*exchange_);
}

Call::~Call() {
  auto& engine = terms_->group->engine();
  engine.detach(*exchange_);
  if (ended_) return;
  terms_->group->end_call();
  // Half a set of first messages cannot be made whole: the peers' deadline has to end this call.
  if (!exchange_->started()) engine.mark_broken();
  if (engine.broken()) return;
  exchange_->drain({ErrorCode::abandoned, comm::MessageError::abandoned, rank(), 0, 0});
  if (!exchange_->advance()) engine.park(std::move(exchange_));
}

void Call::end() {
  terms_->group->end_call();
  ended_ = true;
}

void Call::report(const ExecutionContext& context) {
  for (const auto& m : exchange_->take_log())
    if (context.observer != nullptr) context.observer->message(m.phase, m.peer, m.sent, m.bytes, m.rows);
}

void Call::wait_for_part(const ExecutionContext& context) {
  const PhaseTimer timer(context, Phase::wait);
  exchange_->throw_mpi_fault();
  PartArrived arrived(*exchange_);
  terms_->group->engine().wait(arrived, {"dispatch", layer, step}, context);
}

void Call::wait_for_end(std::string_view phase, const ExecutionContext& context) {
  const PhaseTimer timer(context, Phase::wait);
  exchange_->throw_mpi_fault();
  terms_->group->engine().wait(*exchange_, {phase, layer, step}, context);
}

void Call::throw_failure(const comm::Failure& failure, std::string_view phase) const {
  const std::string where(phase);
  const auto text = failure.detail == comm::MessageError::bad_input
                        ? bad_input_message(failure, terms_->config, ranks(), phase)
                        : failure.message(where, terms_->config.experts);
  throw_error(failure.code, text, failure.rank, where);
}

Prepared Call::empty_part() const {
  Prepared part;
  auto& batch = part.batch;
  batch.type = terms_->config.dispatch;
  batch.hidden = terms_->config.hidden;
  batch.local_experts = static_cast<std::int64_t>(placement->local_slots(rank()).size());
  part.expert_tokens.emplace().rows_per_local_expert.assign(static_cast<std::size_t>(batch.local_experts), 0);
  return part;
}

Prepared Call::take_part() try {
  exchange_->throw_fault();
  auto part = empty_part();
  auto& batch = part.batch;
  output_begin.assign(1, 0);
  for (int source = 0; source < ranks(); ++source) {
    const auto message = exchange_->arrived(source);
    if (message.rows > 0)
      append_rows(batch, terms_->dispatch_format, *placement, rank(), source, message.data + comm::kBlockBytes,
                  message.rows, terms_->rows_for_all);
    output_begin.push_back(terms_->config.reproducible ? batch.routing.entries() : batch.rows());
  }
  for (const auto slot : batch.routing.local_slot)
    ++part.expert_tokens->rows_per_local_expert[static_cast<std::size_t>(slot)];
  part.more = exchange_->more();
  return part;
} catch (const Error&) {
  exchange_->drain({ErrorCode::comm, comm::MessageError::none, rank(), 0, 0});
  throw;
}

}  // namespace epmoe
