#include "epmoe/comm/step_plan.hpp"

#include <fmt/format.h>

#include <cstring>

#include "epmoe/comm/request_set.hpp"

namespace epmoe::comm {
namespace {

constexpr std::uint32_t kMagic = 0x45505350;  // "EPSP"

/// One rank's part of the agreement.
struct Record {
  std::uint32_t magic = kMagic;
  std::uint16_t version = 1;
  std::uint8_t micro_batch = 0;
  std::uint8_t stop = 0;
  std::uint64_t step = 0;
  std::uint64_t placement_epoch = 0;
  std::int64_t tokens = 0;
  std::uint64_t reserved[3] = {};
  std::uint64_t tail = 0;
};
static_assert(sizeof(Record) == kBlockBytes);

class GatheredPlan final : public PendingStepPlan, public Operation {
 public:
  GatheredPlan(ExpertGroup& group, const StepVote& vote, const ExecutionContext& context)
      : group_(group),
        context_(context),
        step_(vote.step),
        requests_(group.communicator()),
        mine_(group.slots().take(kBlockBytes)),
        all_(group.slots().take(group.size() * kBlockBytes)) {
    Record record;
    record.step = vote.step;
    record.placement_epoch = vote.placement_epoch;
    record.tokens = vote.tokens;
    record.micro_batch = vote.micro_batch ? 1 : 0;
    record.stop = vote.stop ? 1 : 0;
    std::memcpy(mine_.data(), &record, sizeof(record));
    // Messages instead of MPI's own allgather, so that a wait can name who is missing. One tag serves all steps:
    // messages of a pair keep their order, so ranks out of step see it in the records.
    std::memcpy(all_.data() + group.rank() * kBlockBytes, &record, sizeof(record));
    constexpr int kTag = make_tag(TagPhase::control, 0);
    for (int i = 1; i < group.size(); ++i) {
      const int from = (group.rank() + group.size() - i) % group.size();
      requests_.receive(all_.data() + from * kBlockBytes, 1, from, kTag);
    }
    for (int i = 1; i < group.size(); ++i) requests_.send(mine_.data(), 1, (group.rank() + i) % group.size(), kTag);
    group_.engine().attach(*this);
  }

  ~GatheredPlan() override {
    try {  // what the peers still expect of us must leave
      if (!requests_.all_done()) group_.engine().wait(*this, what(), context_);
    } catch (...) {
      group_.engine().mark_broken();
    }
    group_.engine().detach(*this);
    if (requests_.all_done()) return;
    requests_.leak();
    mine_.leak();
    all_.leak();
  }

  bool advance() override { return requests_.poll(); }

  [[nodiscard]] std::vector<int> waiting_for() const override { return requests_.pending_peers(); }

  bool poll() override {
    group_.engine().poll();
    return requests_.all_done();
  }

  StepPlan receive() override {
    group_.engine().wait(*this, what(), context_);
    StepPlan plan;
    plan.micro_batch = true;
    Record first;
    for (int r = 0; r < group_.size(); ++r) {
      Record record;
      std::memcpy(&record, all_.data() + r * kBlockBytes, sizeof(record));
      if (r == 0) first = record;
      check(r, "protocol", record.magic ^ record.version, first.magic ^ first.version);
      check(r, "step", record.step, first.step);
      check(r, "placement epoch", record.placement_epoch, first.placement_epoch);
      if (record.tokens < 0)
        throw InputError(fmt::format("rank {}: tokens in the step plan: found {}, wanted at least 0", r, record.tokens),
                         r, "step plan");
      plan.tokens.push_back(record.tokens);
      plan.micro_batch = plan.micro_batch && record.micro_batch != 0;
      plan.stop = plan.stop || record.stop != 0;
    }
    plan.step = first.step;
    plan.placement_epoch = first.placement_epoch;
    return plan;
  }

 private:
  [[nodiscard]] WaitFor what() const { return {"step plan", -1, step_}; }

  /// All ranks see the same records, so all throw the same.
  static void check(int rank, const char* field, std::uint64_t found, std::uint64_t wanted) {
    if (found != wanted)
      throw CommError(
          fmt::format("rank {}: {} in the step plan: found {}, wanted {} as on rank 0", rank, field, found, wanted),
          rank, "step plan");
  }

  ExpertGroup& group_;
  const ExecutionContext& context_;
  std::uint64_t step_;
  RequestSet requests_;
  SlotPool::Slot mine_;
  SlotPool::Slot all_;
};

}  // namespace

std::unique_ptr<PendingStepPlan> begin_step(ExpertGroup& group, const StepVote& vote, const ExecutionContext& context) {
  if (group.broken())
    throw CommError(fmt::format("rank {}: the group is broken, wanted a new one", group.rank()), group.rank(),
                    "step plan");
  return std::make_unique<GatheredPlan>(group, vote, context);
}

}  // namespace epmoe::comm
