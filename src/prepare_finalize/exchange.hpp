#pragma once
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "epmoe/comm/expert_group.hpp"
#include "epmoe/comm/message_header.hpp"
#include "prepare_finalize/send_queue.hpp"

namespace epmoe {

/// A dispatch message: a header block, then rows.
struct Piece {
  std::byte* data = nullptr;
  std::int64_t rows = 0;
};

/// The message pattern of one call, whatever the strategy puts into the messages.
///
/// A pair (source, owner) exchanges dispatch messages D0, D1, … and combine messages C0, C1, …, one C for each D.
/// C(i) returns the outputs of D(i) and is at once the grant on which the source sends D(i + 1): the owner needs
/// memory for one D per source. The last C of every pair leaves when the owner has computed everything, so its header
/// tells every source the owner's final status. Without overflow that is one message per peer and phase.
///
/// Failures never break the pattern. A rank whose input is bad sends D0 with a status and no rows; every rank then
/// sees it in the first headers, and no C follows. A rank that fails later, or whose call was dropped, drains: it
/// receives what its sources still send and answers with its status instead of rows.
class Exchange final : public comm::Operation {
 public:
  struct Terms {
    std::uint64_t call = 0;
    std::uint32_t epoch = 0;
    std::int32_t layer = -1;
    std::uint64_t step = 0;
    std::int64_t dispatch_row_blocks = 0;
    std::int64_t combine_row_blocks = 0;
  };
  /// `failure`: what is wrong with this rank's input, if anything.
  Exchange(comm::ExpertGroup& group, const Terms& terms, const comm::Failure& failure);
  ~Exchange() override;

  // What a strategy's dispatch sets up, in this order.
  /// Message memory that lives as long as the messages do.
  std::byte* hold(std::int64_t bytes);
  /// This rank's dispatch messages for a rank (itself too: those stay here), and the rows that come home: those of
  /// piece p are [home_begin[p], home_begin[p + 1]). Writes the headers.
  void set_outbound(int destination, std::vector<Piece> pieces, std::vector<std::int64_t> home_begin);
  /// Room for everything that comes home.
  void reserve_home();
  /// Posts a receive of at most that many rows from every other rank.
  void receive_from_each(std::span<const std::int64_t> capacity_rows);
  /// First messages by one allgather instead: every rank brings a header and `rows[rank]` rows.
  void gather(std::span<const std::int64_t> rows);
  void send_first(int destination);
  /// The first messages are on their way (or in the queue).
  void set_started() { started_ = true; }
  [[nodiscard]] bool started() const { return started_; }

  // The owner's side.
  /// All messages of the current part are here.
  [[nodiscard]] bool part_arrived() const { return fault_ != nullptr || awaited_.empty(); }
  /// Rows of the current part from a source.
  [[nodiscard]] Piece arrived(int source) const;
  [[nodiscard]] bool has_rows_to_answer(int source) const;
  /// Some source has rows for a further part.
  [[nodiscard]] bool more() const;
  /// The outputs of the current part for a source: `message` has room for the header in front of its rows. Sent now if
  /// the source has further rows, kept until finish() otherwise.
  void answer(int source, comm::SlotPool::Slot message, std::int64_t rows);
  /// This is the last part: the message kept for a source leaves, with this rank's status.
  void finish(int source);
  /// Every source has been finished.
  void set_finished() { finals_queued_ = true; }
  /// Sends `failure` in place of all outputs not yet sent and receives what is still owed.
  void drain(const comm::Failure& failure);
  [[nodiscard]] bool draining() const { return draining_; }

  // The source's side.
  /// Combine row `row` of an owner; complete once advance() was true.
  [[nodiscard]] std::byte* home_row(int owner, std::int64_t row);
  /// The same for row `row` of this rank's own current piece, which is written there and does not travel.
  [[nodiscard]] std::byte* own_home_row(std::int64_t row) {
    return home_row(rank_, out(rank_).home_begin[out(rank_).home_arrived] + row);
  }

  /// The lowest failing rank's, known alike on all ranks once the phase is over.
  [[nodiscard]] comm::Failure dispatch_failure() const;
  [[nodiscard]] comm::Failure combine_failure() const;
  /// Throws what went wrong with the communication itself: an MPI failure or a message that nobody should have sent.
  void throw_fault() const;
  void throw_mpi_fault() const;

  bool advance() override;
  [[nodiscard]] std::vector<int> waiting_for() const override;
  /// What was sent and received since the last call.
  std::vector<MessageRecord> take_log();

 private:
  struct Outbound {  // this rank as a source
    std::vector<Piece> pieces;
    std::vector<std::int64_t> home_begin{0, 0};
    std::byte* home = nullptr;
    int request = -1;
    std::size_t home_arrived = 0;
    comm::Failure failure;
  };
  struct Inbound {  // this rank as an owner
    std::byte* data = nullptr;
    std::int64_t capacity_blocks = 0;
    int request = -1;
    bool gathered = false;
    bool active = false;  ///< rows of the current part are here and unanswered
    std::int64_t rows = 0, more_rows = 0;
    comm::SlotPool::Slot kept;
    std::int64_t kept_rows = 0;
    bool final_queued = false;
    comm::Failure failure;
  };
  [[nodiscard]] comm::MessageHeader header(Phase phase) const;
  void take_own_piece(std::size_t p);
  void post_receive(int source);
  void accept_dispatched();
  void accept_dispatched(int source);
  void accept_home();
  void drain_step();
  void send_home(int source, comm::SlotPool::Slot message, std::int64_t rows);
  void record_violation(int peer, Phase phase, const std::string& what);
  [[nodiscard]] bool finished() const;
  [[nodiscard]] int peer(int i) const { return (rank_ + i) % ranks_; }  ///< i-th in sending order
  [[nodiscard]] Outbound& out(int r) { return out_[static_cast<std::size_t>(r)]; }
  [[nodiscard]] Inbound& in(int r) { return in_[static_cast<std::size_t>(r)]; }
  [[nodiscard]] const Inbound& in(int r) const { return in_[static_cast<std::size_t>(r)]; }

  comm::ExpertGroup* group_;
  Terms terms_;
  int rank_, ranks_;
  comm::Failure own_failure_;  // of this rank, in dispatch or later
  bool failed_input_;          // own_failure_ was there before the first send
  std::vector<Outbound> out_;
  std::vector<Inbound> in_;
  std::vector<int> awaited_;  // sources whose rows for the current part are not here yet
  std::vector<comm::SlotPool::Slot> held_;
  std::vector<MessageRecord> log_;
  comm::RequestSet requests_;
  SendQueue sends_;
  bool started_ = false;
  bool first_part_done_ = false;
  bool draining_ = false;
  bool finals_queued_ = false;
  std::exception_ptr fault_;  // MPI failed: nothing more can be done
  int violating_peer_ = -1;
  std::string violation_;  // a message broke the protocol
};

}  // namespace epmoe
