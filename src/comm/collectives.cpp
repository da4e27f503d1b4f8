// Start-up collectives: large data go in rounds of at most message_bytes, so that no count leaves the range of int.
#include <algorithm>

#include "comm/native.hpp"
#include "comm/startup_wait.hpp"

namespace epmoe::comm {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<std::int64_t> gather_sizes(Communicator::Native& native, std::int64_t mine, const ExecutionContext& context,
                                       const std::string& what) {
  struct Buffers {
    std::int64_t mine;
    std::vector<std::int64_t> all;
  };
  auto buffers =
      std::make_unique<Buffers>(Buffers{mine, std::vector<std::int64_t>(static_cast<std::size_t>(native.size))});
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallgather(&buffers->mine, 1, MPI_INT64_T, buffers->all.data(), 1, MPI_INT64_T, native.comm, &request),
        "MPI_Iallgather");
  wait_startup(native, request, buffers, context, what);
  return std::move(buffers->all);
}

/// One round: every rank's next piece, side by side.
struct Round {
  Bytes send;
  Bytes receive;
  std::vector<int> counts;
  std::vector<int> displacements;
};

/// Rounds of all_gather (root < 0) and gather; the result is empty on ranks that receive nothing.
std::vector<Bytes> gather_rounds(Communicator::Native& native, std::span<const std::byte> bytes, int root,
                                 const ExecutionContext& context, const std::string& what) {
  require_usable(native, what);
  const auto sizes = gather_sizes(native, static_cast<std::int64_t>(bytes.size()), context, what);
  const bool receives = root < 0 || root == native.rank;
  const auto ranks = static_cast<std::size_t>(native.size);
  std::vector<Bytes> result(receives ? ranks : 0);
  if (receives)
    for (std::size_t r = 0; r < ranks; ++r) result[r].resize(static_cast<std::size_t>(sizes[r]));

  const std::int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  const std::int64_t piece = std::max<std::int64_t>(1, native.message_bytes / native.size);
  for (std::int64_t begin = 0; begin < longest; begin += piece) {
    const auto part = [&](std::size_t r) { return std::clamp<std::int64_t>(sizes[r] - begin, 0, piece); };
    auto round = std::make_unique<Round>();
    int total = 0;  // at most max(message_bytes, ranks)
    for (std::size_t r = 0; r < ranks; ++r) {
      round->counts.push_back(static_cast<int>(part(r)));
      round->displacements.push_back(total);
      total += round->counts.back();
    }
    const auto own = static_cast<std::size_t>(part(static_cast<std::size_t>(native.rank)));
    if (own > 0) {
      const auto from = bytes.subspan(static_cast<std::size_t>(begin), own);
      round->send.assign(from.begin(), from.end());
    }
    if (receives) round->receive.resize(static_cast<std::size_t>(total));
    MPI_Request request = MPI_REQUEST_NULL;
    if (root < 0)
      check(MPI_Iallgatherv(round->send.data(), static_cast<int>(own), MPI_BYTE, round->receive.data(),
                            round->counts.data(), round->displacements.data(), MPI_BYTE, native.comm, &request),
            "MPI_Iallgatherv");
    else
      check(MPI_Igatherv(round->send.data(), static_cast<int>(own), MPI_BYTE, round->receive.data(),
                         round->counts.data(), round->displacements.data(), MPI_BYTE, root, native.comm, &request),
            "MPI_Igatherv");
    wait_startup(native, request, round, context, what);
    for (std::size_t r = 0; r < result.size(); ++r)
      std::copy_n(round->receive.begin() + round->displacements[r], round->counts[r], result[r].begin() + begin);
  }
  return result;
}

}  // namespace

void Communicator::barrier(const ExecutionContext& context, const std::string& what) const {
  require_usable(*native_, what);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(native_->comm, &request), "MPI_Ibarrier");
  wait_startup(*native_, request, context, what);
}

std::vector<std::byte> Communicator::broadcast(std::vector<std::byte> bytes, int root, const ExecutionContext& context,
                                               const std::string& what) const {
  require_usable(*native_, what);
  auto size = std::make_unique<std::int64_t>(static_cast<std::int64_t>(bytes.size()));
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibcast(size.get(), 1, MPI_INT64_T, root, native_->comm, &request), "MPI_Ibcast");
  wait_startup(*native_, request, size, context, what);
  auto data = std::make_unique<Bytes>(std::move(bytes));
  data->resize(static_cast<std::size_t>(*size));
  for (std::int64_t begin = 0; begin < *size; begin += native_->message_bytes) {
    const std::int64_t part = std::min(native_->message_bytes, *size - begin);
    check(MPI_Ibcast(data->data() + begin, static_cast<int>(part), MPI_BYTE, root, native_->comm, &request),
          "MPI_Ibcast");
    wait_startup(*native_, request, data, context, what);
  }
  return std::move(*data);
}

std::vector<std::vector<std::byte>> Communicator::all_gather(std::span<const std::byte> bytes,
                                                             const ExecutionContext& context,
                                                             const std::string& what) const {
  return gather_rounds(*native_, bytes, -1, context, what);
}

std::vector<std::vector<std::byte>> Communicator::gather(std::span<const std::byte> bytes, int root,
                                                         const ExecutionContext& context,
                                                         const std::string& what) const {
  if (root < 0 || root >= size()) throw InputError("gather: root is not a rank of the communicator");
  return gather_rounds(*native_, bytes, root, context, what);
}

}  // namespace epmoe::comm
