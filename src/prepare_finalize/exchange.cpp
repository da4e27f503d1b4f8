#include "prepare_finalize/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "prepare_finalize/slots.hpp"

namespace epmoe {
namespace {

constexpr comm::TagPhase tag_phase(Phase phase) {
  return phase == Phase::dispatch ? comm::TagPhase::dispatch : comm::TagPhase::combine;
}

}  // namespace

Exchange::Exchange(comm::ExpertGroup& group, const Terms& terms, const comm::Failure& failure)
    : group_(&group),
      terms_(terms),
      rank_(group.rank()),
      ranks_(group.size()),
      own_failure_(failure),
      failed_input_(failure.any()),
      out_(static_cast<std::size_t>(ranks_)),
      in_(static_cast<std::size_t>(ranks_)),
      requests_(group.communicator()),
      sends_(requests_, group.config().send_window, log_) {}

Exchange::~Exchange() {
  if (requests_.all_done()) return;
  // Only after a broken step: MPI may still read and write these.
  requests_.leak();
  sends_.leak();
  for (auto& slot : held_) slot.leak();
}

comm::MessageHeader Exchange::header(Phase phase) const {
  comm::MessageHeader h;
  h.phase = static_cast<std::uint8_t>(tag_phase(phase));
  h.epoch = terms_.epoch;
  h.layer = terms_.layer;
  h.step = terms_.step;
  h.source = rank_;
  h.row_blocks =
      static_cast<std::int32_t>(phase == Phase::dispatch ? terms_.dispatch_row_blocks : terms_.combine_row_blocks);
  h.status = static_cast<std::int32_t>(own_failure_.code);
  h.error_detail = static_cast<std::int32_t>(own_failure_.detail);
  h.error_row = static_cast<std::int32_t>(own_failure_.row);
  h.error_value = own_failure_.value;
  return h;
}

std::byte* Exchange::hold(std::int64_t bytes) {
  held_.push_back(take_slot(*group_, bytes));
  return held_.back().data();
}

void Exchange::set_outbound(int destination, std::vector<Piece> pieces, std::vector<std::int64_t> home_begin) {
  auto h = header(Phase::dispatch);
  for (const auto& piece : pieces) h.more_rows += piece.rows;
  for (const auto& piece : pieces) {
    h.rows = piece.rows;
    h.more_rows -= piece.rows;
    std::memcpy(piece.data, &h, sizeof h);
  }
  out(destination).pieces = std::move(pieces);
  out(destination).home_begin = std::move(home_begin);
  if (destination == rank_) take_own_piece(0);
}

void Exchange::take_own_piece(std::size_t p) {
  auto& o = out(rank_);
  o.home_arrived = p;
  if (p == o.pieces.size()) return;
  auto& i = in(rank_);
  i.data = o.pieces[p].data;
  i.rows = o.pieces[p].rows;
  i.more_rows = p + 1 < o.pieces.size() ? o.pieces[p + 1].rows : 0;
  i.active = true;
}

void Exchange::reserve_home() {
  std::int64_t blocks = 0;
  for (const auto& o : out_)
    blocks += static_cast<std::int64_t>(o.pieces.size()) + o.home_begin.back() * terms_.combine_row_blocks;
  auto* at = hold(blocks * comm::kBlockBytes);
  for (auto& o : out_) {
    o.home = at;
    at += (static_cast<std::int64_t>(o.pieces.size()) + o.home_begin.back() * terms_.combine_row_blocks) *
          comm::kBlockBytes;
  }
}

std::byte* Exchange::home_row(int owner, std::int64_t row) {
  auto& o = out(owner);
  // One header block stands in front of each piece up to the row's own.
  const auto headers = std::upper_bound(o.home_begin.begin() + 1, o.home_begin.end() - 1, row) - o.home_begin.begin();
  return o.home + (headers + row * terms_.combine_row_blocks) * comm::kBlockBytes;
}

void Exchange::post_receive(int source) {
  auto& i = in(source);
  i.gathered = false;
  i.request =
      requests_.receive(i.data, i.capacity_blocks, source, comm::make_tag(comm::TagPhase::dispatch, terms_.call));
  awaited_.push_back(source);
}

void Exchange::receive_from_each(std::span<const std::int64_t> capacity_rows) {
  std::int64_t blocks = 0;
  for (int s = 0; s < ranks_; ++s) {
    if (s == rank_) continue;
    in(s).capacity_blocks = 1 + capacity_rows[static_cast<std::size_t>(s)] * terms_.dispatch_row_blocks;
    blocks += in(s).capacity_blocks;
  }
  if (ranks_ == 1) return;
  auto* at = hold(blocks * comm::kBlockBytes);
  for (int s = 0; s < ranks_; ++s) {
    if (s == rank_) continue;
    in(s).data = at;
    at += in(s).capacity_blocks * comm::kBlockBytes;
  }
  for (int i = 1; i < ranks_; ++i) post_receive(peer(ranks_ - i));  // in the order in which they send to this rank
}

void Exchange::gather(std::span<const std::int64_t> rows) {
  std::vector<std::int64_t> counts, displacements;
  std::int64_t blocks = 0;
  for (const auto n : rows) {
    displacements.push_back(blocks);
    counts.push_back(1 + n * terms_.dispatch_row_blocks);
    blocks += counts.back();
  }
  auto* into = hold(blocks * comm::kBlockBytes);
  const auto& mine = out(rank_).pieces.front();
  const auto r = static_cast<std::size_t>(rank_);
  const int request = requests_.all_gather(mine.data, counts[r], into, counts, displacements);
  for (int s = 0; s < ranks_; ++s) {
    if (s == rank_) continue;
    auto& i = in(s);
    const auto n = static_cast<std::size_t>(s);
    i.data = into + displacements[n] * comm::kBlockBytes;
    i.capacity_blocks = counts[n];
    i.request = request;
    i.gathered = true;
    awaited_.push_back(s);
    log_.push_back({Phase::dispatch, s, true, counts[r] * comm::kBlockBytes, mine.rows});
  }
}

void Exchange::send_first(int destination) {
  const auto& piece = out(destination).pieces.front();
  sends_.push({Phase::dispatch,
               destination,
               comm::make_tag(comm::TagPhase::dispatch, terms_.call),
               piece.data,
               1 + piece.rows * terms_.dispatch_row_blocks,
               piece.rows,
               {}});
  sends_.advance();
}

bool Exchange::advance() {
  if (fault_ != nullptr) return true;
  try {
    requests_.poll();
    accept_dispatched();
    if (first_part_done_ && !dispatch_failure().any()) {
      accept_home();
      if (draining_) drain_step();
    }
    sends_.advance();
    return finished();
  } catch (const Error&) {
    fault_ = std::current_exception();
    group_->engine().mark_broken();
    return true;
  }
}

bool Exchange::finished() const {
  if (!first_part_done_ || !sends_.empty()) return false;
  if (dispatch_failure().any()) return true;
  for (int i = 1; i < ranks_; ++i) {
    const auto& o = out_[static_cast<std::size_t>(peer(i))];
    if (o.home_arrived < o.pieces.size()) return false;
  }
  return finals_queued_;
}

std::vector<int> Exchange::waiting_for() const {
  auto ranks = awaited_;
  if (ranks.empty() && !dispatch_failure().any())
    for (int r = 0; r < ranks_; ++r) {
      const auto& o = out_[static_cast<std::size_t>(r)];
      if (r != rank_ && o.home_arrived < o.pieces.size()) ranks.push_back(r);
    }
  if (ranks.empty()) ranks = requests_.pending_peers();
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

comm::Failure Exchange::dispatch_failure() const {
  for (int r = 0; r < ranks_; ++r) {
    if (r == rank_ && failed_input_) return own_failure_;
    if (in(r).failure.any()) return in(r).failure;
  }
  return {};
}

comm::Failure Exchange::combine_failure() const {
  for (int r = 0; r < ranks_; ++r) {
    if (r == rank_ && own_failure_.any()) return own_failure_;
    if (out_[static_cast<std::size_t>(r)].failure.any()) return out_[static_cast<std::size_t>(r)].failure;
  }
  return {};
}

void Exchange::throw_mpi_fault() const {
  if (fault_ != nullptr) std::rethrow_exception(fault_);
}

void Exchange::throw_fault() const {
  throw_mpi_fault();
  if (!violation_.empty()) throw CommError(violation_, rank_);
}

std::vector<MessageRecord> Exchange::take_log() {
  return std::exchange(log_, {});
}

void Exchange::record_violation(int peer, Phase phase, const std::string& what) {
  if (violation_.empty() || peer < violating_peer_) {
    violating_peer_ = peer;
    violation_ = fmt::format("rank {}: message of rank {} in {}: {}", rank_, peer, name(phase), what);
  }
  // Peers learn of it where they can: in what this rank still owes them.
  if (!own_failure_.any()) own_failure_ = {ErrorCode::comm, comm::MessageError::header_mismatch, rank_, peer, 0};
}

}  // namespace epmoe
