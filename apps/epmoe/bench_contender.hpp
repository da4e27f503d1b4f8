#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "bench_layers.hpp"
#include "bench_samples.hpp"
#include "epmoe/experts/spot_check.hpp"

namespace epmoe::cli {

/// One of those that are measured side by side, ready for one format.
class BenchContender {
 public:
  virtual ~BenchContender() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::string isa() const = 0;
  /// Bytes of one expert as it stores them, where that is not what the format says.
  [[nodiscard]] virtual double expert_bytes(double of_format) const { return of_format; }
  /// Whether a result was compared with what it should be; after prepare().
  [[nodiscard]] virtual bool checked() const { return true; }
  /// Before a series: checks a result with the threads of `context`, untimed. Returns what is wrong, or nothing. Later
  /// calls of run() refer to the sets of `batches`, which live as long; `check` is for the first of them.
  virtual std::string prepare(const BenchBatches& batches, const SpotCheck& check, const ExecutionContext& context) = 0;
  /// One call on a set: fills in `seconds`, and what of its phases is known.
  virtual void run(std::size_t set, BenchSample& sample, const ExecutionContext& context) = 0;
};

/// An experts back end of the library, over packed layers and scratch memory that contenders share.
class BackendContender final : public BenchContender {
 public:
  BackendContender(std::unique_ptr<Experts> experts, BenchLayers& layers, BenchCall& call)
      : experts_(std::move(experts)), layers_(layers), call_(call) {}
  [[nodiscard]] std::string name() const override { return std::string(experts_->name()); }
  [[nodiscard]] std::string isa() const override { return std::string(experts_->isa()); }
  std::string prepare(const BenchBatches& batches, const SpotCheck& check, const ExecutionContext& context) override;
  void run(std::size_t set, BenchSample& sample, const ExecutionContext& context) override;

 private:
  std::unique_ptr<Experts> experts_;
  BenchLayers& layers_;
  BenchCall& call_;
  const BenchBatches* batches_ = nullptr;
};

}  // namespace epmoe::cli
