#include "epmoe/comm/request_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "comm/live_counters.hpp"
#include "comm/native.hpp"
#include "epmoe/core/aligned_memory.hpp"

namespace epmoe::comm {
namespace {

enum class Kind : std::uint8_t { receive, send, gather };

struct Entry {
  Kind kind = Kind::receive;
  bool done = false;
  int peer = -1;
  int tag = 0;
  std::int64_t blocks = 0;
  std::int64_t received = 0;
};

std::string describe(const Entry& entry) {
  switch (entry.kind) {
    case Kind::receive:
      return fmt::format("receive of up to {} blocks from rank {} (tag {})", entry.blocks, entry.peer, entry.tag);
    case Kind::send: return fmt::format("send of {} blocks to rank {} (tag {})", entry.blocks, entry.peer, entry.tag);
    case Kind::gather: break;
  }
  return fmt::format("all_gather of {} blocks", entry.blocks);
}

/// MPI reads these until its gather is done.
struct GatherArrays {
  std::vector<int> counts, displacements;
};

}  // namespace

struct RequestSet::Impl {
  Communicator::Native* native = nullptr;
  std::vector<Entry> entries;
  // Compact arrays of what is pending, since MPI_Testsome looks at every element.
  std::vector<MPI_Request> active;
  std::vector<int> entry_of;
  std::vector<int> finished;
  std::vector<MPI_Status> statuses;
  std::vector<std::unique_ptr<GatherArrays>> gathers;

  [[nodiscard]] CommError error(const Entry& entry, const std::string& why) const {
    return CommError(fmt::format("rank {}: {}: {}", native->rank, describe(entry), why), entry.peer);
  }
  void check_range(const Entry& entry, std::int64_t value, const char* what) const {
    constexpr std::int64_t kMost = std::numeric_limits<int>::max();
    if (value < 0 || value > kMost) throw error(entry, fmt::format("{}: found {}, wanted 0 to {}", what, value, kMost));
  }
  void check_peer(const Entry& entry) const {
    if (entry.peer < 0 || entry.peer >= native->size)
      throw error(entry, fmt::format("peer: found {}, wanted 0 to {}", entry.peer, native->size - 1));
  }
  int started(const Entry& entry, MPI_Request request, int code) {
    if (code != MPI_SUCCESS) throw error(entry, mpi_error_text(code));
    const int index = static_cast<int>(entries.size());
    entries.push_back(entry);
    active.push_back(request);
    entry_of.push_back(index);
    ++live_counters().requests;
    return index;
  }
  void forget() {
    live_counters().requests -= static_cast<std::int64_t>(active.size());
    active.clear();
    entry_of.clear();
    for (auto& arrays : gathers) {
      ignore_leak(arrays.get());
      (void)arrays.release();
    }
    gathers.clear();
  }
};

RequestSet::RequestSet(const Communicator& comm) : impl_(std::make_unique<Impl>()) {
  // The handles are shared by all users of the communicator; its constness is about membership.
  impl_->native = const_cast<Communicator::Native*>(&comm.native());
}

int RequestSet::receive(void* data, std::int64_t blocks, int source, int tag) {
  const Entry entry{Kind::receive, false, source, tag, blocks, 0};
  impl_->check_range(entry, blocks, "blocks");
  impl_->check_peer(entry);
  MPI_Request request = MPI_REQUEST_NULL;
  const int code =
      MPI_Irecv(data, static_cast<int>(blocks), impl_->native->block, source, tag, impl_->native->comm, &request);
  const int index = impl_->started(entry, request, code);
  ++pending_;
  return index;
}

int RequestSet::send(const void* data, std::int64_t blocks, int destination, int tag) {
  const Entry entry{Kind::send, false, destination, tag, blocks, 0};
  impl_->check_range(entry, blocks, "blocks");
  impl_->check_peer(entry);
  MPI_Request request = MPI_REQUEST_NULL;
  const int code =
      MPI_Isend(data, static_cast<int>(blocks), impl_->native->block, destination, tag, impl_->native->comm, &request);
  const int index = impl_->started(entry, request, code);
  ++pending_;
  return index;
}

int RequestSet::all_gather(const void* data, std::int64_t blocks, void* into, std::span<const std::int64_t> counts,
                           std::span<const std::int64_t> displacements) {
  const Entry entry{Kind::gather, false, -1, 0, blocks, 0};
  const auto ranks = static_cast<std::size_t>(impl_->native->size);
  impl_->check_range(entry, blocks, "blocks");
  if (counts.size() != ranks || displacements.size() != ranks)
    throw impl_->error(entry, fmt::format("counts and displacements: found {} and {}, wanted {} each", counts.size(),
                                          displacements.size(), ranks));
  auto arrays = std::make_unique<GatherArrays>();
  for (std::size_t r = 0; r < ranks; ++r) {
    impl_->check_range(entry, counts[r], "count");
    impl_->check_range(entry, displacements[r], "displacement");
    arrays->counts.push_back(static_cast<int>(counts[r]));
    arrays->displacements.push_back(static_cast<int>(displacements[r]));
  }
  const auto own = counts[static_cast<std::size_t>(impl_->native->rank)];
  if (own != blocks) throw impl_->error(entry, fmt::format("own count: found {}, wanted {}", own, blocks));
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Iallgatherv(data, static_cast<int>(blocks), impl_->native->block, into, arrays->counts.data(),
                                   arrays->displacements.data(), impl_->native->block, impl_->native->comm, &request);
  const int index = impl_->started(entry, request, code);
  impl_->gathers.push_back(std::move(arrays));
  ++pending_;
  return index;
}

bool RequestSet::poll() {
  auto& s = *impl_;
  if (s.active.empty()) return true;
  s.finished.resize(s.active.size());
  s.statuses.resize(s.active.size());
  int count = 0;
  const int code =
      MPI_Testsome(static_cast<int>(s.active.size()), s.active.data(), &count, s.finished.data(), s.statuses.data());
  if (count == MPI_UNDEFINED) count = 0;
  // Book everything that ended before reporting the first failure. Open MPI returns the request's own code where the
  // standard says MPI_ERR_IN_STATUS, so any failure sends us to the statuses.
  std::string failed;
  int peer = -1;
  for (int i = 0; i < count; ++i) {
    const auto position = static_cast<std::size_t>(s.finished[static_cast<std::size_t>(i)]);
    MPI_Status& status = s.statuses[static_cast<std::size_t>(i)];
    Entry& entry = s.entries[static_cast<std::size_t>(s.entry_of[position])];
    entry.done = true;
    s.entry_of[position] = -1;
    std::string why;
    if (code != MPI_SUCCESS && status.MPI_ERROR != MPI_SUCCESS) {
      why = mpi_error_text(status.MPI_ERROR);
    } else if (entry.kind == Kind::receive) {
      int blocks = 0;
      const int got = MPI_Get_count(&status, s.native->block, &blocks);
      if (got != MPI_SUCCESS)
        why = mpi_error_text(got);
      else if (blocks == MPI_UNDEFINED)
        why = "found a message of part of a block, wanted whole blocks of 64 bytes";
      else if (blocks > entry.blocks)
        why = fmt::format("found a message of {} blocks", blocks);
      else
        entry.received = blocks;
    }
    if (!why.empty() && failed.empty()) {
      failed = s.error(entry, why).what();
      peer = entry.peer;
    }
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < s.active.size(); ++i) {
    if (s.entry_of[i] < 0) continue;
    s.active[kept] = s.active[i];
    s.entry_of[kept++] = s.entry_of[i];
  }
  live_counters().requests -= static_cast<std::int64_t>(s.active.size() - kept);
  s.active.resize(kept);
  s.entry_of.resize(kept);
  pending_ = static_cast<std::int64_t>(kept);
  if (kept == 0) s.gathers.clear();
  if (!failed.empty()) throw CommError(failed, peer);
  if (code != MPI_SUCCESS) {
    std::vector<int> peers = pending_peers();
    throw CommError(
        fmt::format("rank {}: MPI_Testsome with {} requests pending: {}", s.native->rank, kept, mpi_error_text(code)),
        peers.size() == 1 ? peers[0] : -1);
  }
  return kept == 0;
}

bool RequestSet::done(int request) const {
  return impl_->entries.at(static_cast<std::size_t>(request)).done;
}

std::int64_t RequestSet::received_blocks(int request) const {
  return impl_->entries.at(static_cast<std::size_t>(request)).received;
}

int RequestSet::peer(int request) const {
  return impl_->entries.at(static_cast<std::size_t>(request)).peer;
}

std::vector<int> RequestSet::pending_peers() const {
  std::vector<int> peers;
  for (const int index : impl_->entry_of)
    if (const int p = impl_->entries[static_cast<std::size_t>(index)].peer; p >= 0) peers.push_back(p);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

void RequestSet::leak() {
  impl_->forget();
  pending_ = 0;
}

RequestSet::~RequestSet() {
  auto& s = *impl_;
  int finalized = 0;
  if (s.active.empty()) return;
  if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0) {
    for (std::size_t i = 0; i < s.active.size(); ++i) {
      const Kind kind = s.entries[static_cast<std::size_t>(s.entry_of[i])].kind;
      if (kind == Kind::send) MPI_Request_free(&s.active[i]);
      if (kind == Kind::receive && MPI_Cancel(&s.active[i]) == MPI_SUCCESS) {
        // A cancelled receive ends by itself unless its message is already on the way; a dead peer must not hold us.
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
        int done = 0;
        while (MPI_Test(&s.active[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0 &&
               std::chrono::steady_clock::now() < deadline)
          std::this_thread::yield();
      }
    }
  }
  s.forget();
}

}  // namespace epmoe::comm
