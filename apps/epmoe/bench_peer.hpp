#pragma once
#include <memory>

#include "bench_contender.hpp"
#include "peer_process.hpp"

namespace epmoe::cli {

/// Experts of another program, measured in turn with ours and between the same probes. It is asked
///
///   {"ask":"layer","format":"bf16","hidden":H,"intermediate":I,"experts":E,"seed":S}
///     -> {"name":"ggml","isa":"bf16","expert_bytes":N}   it made random weights of its own; N bytes an expert
///     -> {"refused":"why"}                               left out for this format
///   {"ask":"batch","set":0,"tokens":T,"top_k":K,"threads":N,"ids":[T*K experts, token by token]}
///     -> {"checked":true}     it ran the set and found the result right (false: it did not look)
///     -> {"wrong":"what"}     the benchmark ends
///   {"ask":"run","set":0}
///     -> {"seconds":s}        time of SiLU(x gate) * (x up) times down for all (token, expert) pairs, no weighted sum
class PeerContender final : public BenchContender {
 public:
  /// Asks for the layer. Returns nothing, and says why in `refusal`, if the peer does not take it.
  static std::unique_ptr<PeerContender> make(PeerProcess& process, const std::string& format, const MoeConfig& shape,
                                             std::uint64_t seed, std::string* refusal);
  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::string isa() const override { return isa_; }
  [[nodiscard]] bool checked() const override { return checked_; }
  [[nodiscard]] double expert_bytes(double /*of_format*/) const override { return expert_bytes_; }
  std::string prepare(const BenchBatches& batches, const SpotCheck& check, const ExecutionContext& context) override;
  void run(std::size_t set, BenchSample& sample, const ExecutionContext& context) override;

 private:
  explicit PeerContender(PeerProcess& process) : process_(process) {}
  PeerProcess& process_;
  std::string name_, isa_;
  double expert_bytes_ = 0.0;
  bool checked_ = false;
};

}  // namespace epmoe::cli
