/// How an exchange takes what arrives and answers it.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "prepare_finalize/exchange.hpp"
#include "prepare_finalize/slots.hpp"

namespace epmoe {
namespace {

comm::MessageHeader read_header(const std::byte* message) {
  comm::MessageHeader h;
  std::memcpy(&h, message, sizeof h);
  return h;
}

comm::Failure failure_in(const comm::MessageHeader& h) {
  return {static_cast<ErrorCode>(h.status), static_cast<comm::MessageError>(h.error_detail), h.source, h.error_row,
          h.error_value};
}

}  // namespace

void Exchange::accept_dispatched() {
  if (awaited_.empty()) {
    first_part_done_ = first_part_done_ || started_;
    return;
  }
  std::erase_if(awaited_, [&](int source) {
    if (!requests_.done(in(source).request)) return false;
    accept_dispatched(source);
    return true;
  });
  if (awaited_.empty()) first_part_done_ = first_part_done_ || started_;
}

void Exchange::accept_dispatched(int source) {
  auto& i = in(source);
  const auto h = read_header(i.data);
  const auto blocks = i.gathered ? i.capacity_blocks : requests_.received_blocks(i.request);
  const bool failed = h.status != 0;
  auto expected = header(Phase::dispatch);
  expected.source = source;
  auto wrong = comm::mismatch(h, expected);
  const auto rows = failed ? (blocks - 1) / terms_.dispatch_row_blocks : h.rows;
  if (!wrong && (h.rows < 0 || h.more_rows < 0 || (failed && h.rows + h.more_rows != 0) ||
                 blocks != 1 + rows * terms_.dispatch_row_blocks))
    wrong = fmt::format("{} rows and {} to follow in {} blocks", h.rows, h.more_rows, blocks);
  log_.push_back({Phase::dispatch, source, false, blocks * comm::kBlockBytes, h.rows});
  i.active = true;
  i.rows = wrong || failed ? 0 : h.rows;
  // Whatever call the message belongs to, its source waits for as many answers as it announced pieces.
  i.more_rows = failed || h.magic != comm::MessageHeader::kMagic ? 0 : h.more_rows;
  // A failed rank ends the call for all, in whichever call it believes itself to be.
  if (failed && !first_part_done_ && h.magic == comm::MessageHeader::kMagic) {
    i.failure = failure_in(h);
  } else if (wrong) {
    record_violation(source, Phase::dispatch, *wrong);
  }
}

void Exchange::accept_home() {
  const auto tag = comm::make_tag(comm::TagPhase::combine, terms_.call);
  for (int i = 1; i < ranks_; ++i) {
    const int owner = peer(i);
    auto& o = out(owner);
    while (o.home_arrived < o.pieces.size()) {
      const auto p = o.home_arrived;
      const auto rows = o.home_begin[p + 1] - o.home_begin[p];
      auto* message =
          o.home + (static_cast<std::int64_t>(p) + o.home_begin[p] * terms_.combine_row_blocks) * comm::kBlockBytes;
      if (o.request < 0) o.request = requests_.receive(message, 1 + rows * terms_.combine_row_blocks, owner, tag);
      if (!requests_.done(o.request)) break;
      const auto h = read_header(message);
      const auto blocks = requests_.received_blocks(o.request);
      auto expected = header(Phase::combine);
      expected.source = owner;
      auto wrong = comm::mismatch(h, expected);
      const auto wanted = h.status != 0 ? 0 : rows;
      if (!wrong && (h.rows != wanted || blocks != 1 + wanted * terms_.combine_row_blocks))
        wrong = fmt::format("{} rows in {} blocks, wanted {}", h.rows, blocks, wanted);
      if (wrong) record_violation(owner, Phase::combine, *wrong);
      log_.push_back({Phase::combine, owner, false, blocks * comm::kBlockBytes, h.rows});
      o.request = -1;
      ++o.home_arrived;
      if (o.home_arrived == o.pieces.size()) {
        if (!wrong && h.status != 0) o.failure = failure_in(h);
        break;
      }
      const auto& next = o.pieces[o.home_arrived];  // granted by what has just come home
      sends_.push({Phase::dispatch,
                   owner,
                   comm::make_tag(comm::TagPhase::dispatch, terms_.call),
                   next.data,
                   1 + next.rows * terms_.dispatch_row_blocks,
                   next.rows,
                   {}});
    }
  }
}

Piece Exchange::arrived(int source) const {
  const auto& i = in(source);
  return i.active ? Piece{i.data, i.rows} : Piece{};
}

bool Exchange::has_rows_to_answer(int source) const {
  return in(source).active;
}

bool Exchange::more() const {
  return !draining_ &&
         std::any_of(in_.begin(), in_.end(), [](const Inbound& i) { return i.active && i.more_rows > 0; });
}

void Exchange::send_home(int source, comm::SlotPool::Slot message, std::int64_t rows) {
  auto h = header(Phase::combine);
  if (own_failure_.any()) rows = 0;
  h.rows = rows;
  std::memcpy(message.data(), &h, sizeof h);
  OutgoingMessage outgoing{Phase::combine,
                           source,
                           comm::make_tag(comm::TagPhase::combine, terms_.call),
                           nullptr,
                           1 + rows * terms_.combine_row_blocks,
                           rows,
                           std::move(message)};
  outgoing.data = outgoing.owned.data();
  sends_.push(std::move(outgoing));
}

void Exchange::answer(int source, comm::SlotPool::Slot message, std::int64_t rows) {
  auto& i = in(source);
  i.active = false;
  if (source == rank_) {
    take_own_piece(out(rank_).home_arrived + 1);
  } else if (i.more_rows > 0) {
    post_receive(source);
    send_home(source, std::move(message), rows);
    sends_.advance();
  } else {
    i.kept = std::move(message);
    i.kept_rows = rows;
  }
}

void Exchange::finish(int source) {
  in(source).final_queued = true;
  send_home(source, std::move(in(source).kept), in(source).kept_rows);
  sends_.advance();
}

void Exchange::drain(const comm::Failure& failure) {
  if (!own_failure_.any()) own_failure_ = failure;
  draining_ = true;
}

void Exchange::drain_step() {
  while (awaited_.empty() && !finals_queued_) {
    bool more_to_come = false;
    for (int i = 1; i < ranks_; ++i) {
      const int source = peer(i);
      auto& from = in(source);
      if (!from.active) continue;
      from.active = false;
      if (from.more_rows == 0) continue;
      post_receive(source);
      send_home(source, take_slot(*group_, comm::kBlockBytes), 0);
      more_to_come = true;
    }
    if (more_to_come) return;
    for (int i = 1; i < ranks_; ++i)
      if (!in(peer(i)).final_queued) send_home(peer(i), take_slot(*group_, comm::kBlockBytes), 0);
    finals_queued_ = true;
  }
}

}  // namespace epmoe
