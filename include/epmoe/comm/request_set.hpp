#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "epmoe/comm/communicator.hpp"

namespace epmoe::comm {

/// All messages are counted in blocks of 64 bytes (one MPI datatype), so that int counts reach 128 GiB.
inline constexpr std::int64_t kBlockBytes = 64;

/// Tags stay below 32767 (the least MPI guarantees): 2 bits of phase, then the call's number modulo 8191.
enum class TagPhase : std::uint8_t { dispatch = 0, combine = 1, control = 2 };
constexpr int make_tag(TagPhase phase, std::uint64_t call) {
  return static_cast<int>(phase) * 8191 + static_cast<int>(call % 8191);
}

/// Sends, receives and gathers that belong together. Their buffers are off limits until they are done. Dropping a
/// set with requests pending completes receives by cancelling them and gives pending sends and gathers up; owners
/// therefore keep buffers alive until all_done() or leak them (see SlotPool::Slot::leak).
class RequestSet {
 public:
  explicit RequestSet(const Communicator& comm);
  RequestSet(const RequestSet&) = delete;
  RequestSet& operator=(const RequestSet&) = delete;
  ~RequestSet();

  /// Each starts one request and returns its index. Counts are in blocks and range-checked (CommError naming them).
  /// A receive may be longer than what arrives.
  int receive(void* data, std::int64_t blocks, int source, int tag);
  int send(const void* data, std::int64_t blocks, int destination, int tag);
  /// MPI_Iallgatherv: `counts` and `displacements` per rank, in blocks; kept alive inside until done. Never in place.
  int all_gather(const void* data, std::int64_t blocks, void* into, std::span<const std::int64_t> counts,
                 std::span<const std::int64_t> displacements);

  /// Tests without blocking; true once all are done. Throws CommError naming the failing peer.
  bool poll();
  [[nodiscard]] bool all_done() const { return pending_ == 0; }
  [[nodiscard]] std::int64_t pending() const { return pending_; }
  [[nodiscard]] bool done(int request) const;
  /// Blocks that arrived for a receive that is done.
  [[nodiscard]] std::int64_t received_blocks(int request) const;
  /// Peer of a request (-1 for gathers).
  [[nodiscard]] int peer(int request) const;
  /// Peers of requests that are still pending, ascending, each once.
  [[nodiscard]] std::vector<int> pending_peers() const;
  /// Forgets requests that MPI may still work on; their buffers must never be freed.
  void leak();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::int64_t pending_ = 0;
};

}  // namespace epmoe::comm
