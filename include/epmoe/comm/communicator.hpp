#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "epmoe/core/error.hpp"
#include "epmoe/core/execution_context.hpp"

/// A communicator of our own: every object owns a duplicate with MPI_ERRORS_RETURN, every call is checked, and no
/// public header needs <mpi.h> (epmoe/mpi.hpp turns a caller's MPI_Comm into one). MPI must be initialised
/// (comm::Environment does it for programs that did not). Not thread-safe: one thread at a time uses MPI.
namespace epmoe::comm {

class Communicator {
 public:
  struct Native;  ///< defined in src/comm only
  /// Duplicates of MPI_COMM_WORLD and MPI_COMM_SELF. `world` is collective.
  static Communicator world();
  static Communicator self();
  explicit Communicator(std::unique_ptr<Native> native);
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();  ///< collective, except after leak()

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  /// Collective over this communicator.
  [[nodiscard]] Communicator duplicate() const;
  /// Collective; ranks with equal `color` end up together, ordered by `key`, then rank. A negative colour joins no
  /// group and gets a communicator of itself alone.
  [[nodiscard]] Communicator split(int color, int key) const;
  /// Collective: ranks that share memory.
  [[nodiscard]] Communicator split_node() const;
  /// Never freed: for a group that is broken.
  void leak();
  [[nodiscard]] const Native& native() const { return *native_; }
  /// Most bytes that one message of broadcast, all_gather and gather carries (256 MiB unless set, 1 GiB at most);
  /// larger data go in rounds. The same on all ranks.
  void limit_message_bytes(std::int64_t bytes);

  // Start-up collectives. Each waits under context.deadlines and names `what` in its TimeoutError, after which the
  // communicator is broken: it refuses further collectives and is never freed.
  void barrier(const ExecutionContext& context, const std::string& what) const;
  /// Root's bytes on every rank; other ranks' `bytes` are ignored.
  [[nodiscard]] std::vector<std::byte> broadcast(std::vector<std::byte> bytes, int root,
                                                 const ExecutionContext& context, const std::string& what) const;
  /// Every rank's bytes, in rank order, on every rank.
  [[nodiscard]] std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> bytes,
                                                               const ExecutionContext& context,
                                                               const std::string& what) const;
  /// Every rank's bytes in rank order on `root`, empty elsewhere. Large: sizes are 64-bit.
  [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes, int root,
                                                           const ExecutionContext& context,
                                                           const std::string& what) const;

 private:
  std::unique_ptr<Native> native_;
};

/// Collective. Every rank passes its error or null; if any has one, all ranks throw the lowest failing rank's, with
/// "rank N: " in front. So a file that one rank alone cannot read ends the call on every rank.
void agree_or_throw(const Communicator& comm, std::exception_ptr mine, const ExecutionContext& context,
                    const std::string& what);

/// Collective. Throws the same ConfigError on all ranks, naming field, values and ranks, if a field differs.
void check_same(const Communicator& comm, std::span<const std::pair<std::string, std::string>> fields,
                const ExecutionContext& context, const std::string& what);

/// MPI objects of ours that are alive in this process; tests check that they reach zero.
struct LiveHandles {
  std::int64_t communicators = 0, datatypes = 0, windows = 0, requests = 0;
  [[nodiscard]] std::int64_t total() const { return communicators + datatypes + windows + requests; }
};
LiveHandles live_handles();

}  // namespace epmoe::comm
