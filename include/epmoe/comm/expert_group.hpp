#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "epmoe/comm/communicator.hpp"
#include "epmoe/comm/progress_engine.hpp"
#include "epmoe/comm/slot_pool.hpp"

namespace epmoe::comm {

/// Settings that all members must share; compared when the group is made.
struct GroupConfig {
  std::int64_t receive_budget_bytes = 256LL << 20;  ///< for receive slots of all calls in flight together
  int max_in_flight = 4;                            ///< calls issued and not finished
  int send_window = 8;                              ///< outstanding sends per call
  int tensor_parallel_size = 1;
  /// Throws ConfigError naming field, found, wanted.
  void validate() const;
};

/// The ranks that share a layer's experts, by handle. Nothing else in the library holds a world size, so groups
/// smaller than the world work. Layers, strategies and step plans refer to it; it owns the communicator, the
/// progress engine and all message buffers. Creation and destruction are collective over the members; a broken group
/// is leaked instead. The clock of the context it is made with must outlive it.
class ExpertGroup {
 public:
  static std::shared_ptr<ExpertGroup> create(const Communicator& members, const GroupConfig& config,
                                             const ExecutionContext& context);
  ~ExpertGroup();
  ExpertGroup(const ExpertGroup&) = delete;
  ExpertGroup& operator=(const ExpertGroup&) = delete;

  [[nodiscard]] int rank() const { return comm_.rank(); }
  [[nodiscard]] int size() const { return comm_.size(); }
  [[nodiscard]] const GroupConfig& config() const { return config_; }
  [[nodiscard]] const Communicator& communicator() const { return comm_; }
  [[nodiscard]] ProgressEngine& engine() { return engine_; }
  [[nodiscard]] SlotPool& slots() { return slots_; }
  /// Rises when membership or the communicator changes.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  [[nodiscard]] bool alive(int rank) const { return alive_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int tensor_parallel_rank() const { return rank() % config_.tensor_parallel_size; }
  /// Collective over the new members, of which newcomers call create(); refused with InputError on all while calls or
  /// operations are in flight on any. Mends a broken group.
  void replace_communicator(const Communicator& members, const ExecutionContext& context);

  /// Every call of a strategy gets the next number, the same on all ranks since the order of issue is. Throws
  /// InputError if max_in_flight calls are unfinished, CommError if the group is broken.
  std::uint64_t begin_call();
  void end_call() { --in_flight_; }
  [[nodiscard]] int in_flight() const { return in_flight_; }
  [[nodiscard]] bool broken() const { return engine_.broken(); }

 private:
  ExpertGroup(Communicator comm, const GroupConfig& config, const Clock& clock, double drain_seconds);
  Communicator comm_;
  GroupConfig config_;
  const Clock* clock_;
  double drain_seconds_;  ///< for what is parked when the group ends
  ProgressEngine engine_;
  SlotPool slots_;
  std::vector<bool> alive_;
  std::uint64_t epoch_ = 0;
  std::uint64_t next_call_ = 0;
  int in_flight_ = 0;
};

}  // namespace epmoe::comm
