#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "epmoe/comm/expert_group.hpp"
#include "epmoe/core/moe_config.hpp"
#include "epmoe/core/quant_config.hpp"
#include "epmoe/prepare_finalize/prepare_finalize.hpp"
#include "epmoe/route/router.hpp"
#include "epmoe/runtime/modular_kernel.hpp"

/// One MoE layer ready to run: router, experts of this rank, shared experts, strategy.
namespace epmoe {

/// How to run layers; equal on all ranks (compared).
struct RunConfig {
  std::string strategy = "auto";
  std::string backend = "auto";
  std::string isa;  ///< not compared: ranks may differ
  ComputeType compute = ComputeType::f32;
  DispatchType dispatch = DispatchType::f32;
  CombineType combine = CombineType::f32;
  bool reproducible = false;
  std::int64_t max_num_tokens_per_rank = 0;
  KernelConfig kernel;
};

/// Where a layer's weights come from: views that live until the call that asked for them returns to its caller.
struct LayerSource {
  MoeConfig config;
  std::int64_t layer = 0;
  ConstMatrixView router;  ///< [E, H]
  std::vector<float> correction_bias;
  std::function<ExpertWeights(std::int32_t)> expert;  ///< logical expert
  std::optional<ExpertWeights> shared;
  std::optional<ConstMatrixView> shared_gate;                        ///< [1, H]
  std::function<void(std::int64_t done, std::int64_t of)> progress;  ///< after each expert packed; may be empty
};

class MoeLayer {
 public:
  /// Collective over the group: packs this rank's experts one by one (asking `source` for no others). If any rank
  /// fails, all throw.
  MoeLayer(std::shared_ptr<comm::ExpertGroup> group, std::shared_ptr<const Placement> placement,
           const LayerSource& source, const RunConfig& config, const ExecutionContext& context);

  /// Stage 1 on this rank's tokens; local. `logits` [tokens, experts] may be null.
  [[nodiscard]] OwnedRouting route(ConstMatrixView x, const ExecutionContext& context,
                                   std::vector<float>* logits = nullptr) const;
  /// Collective: stage 1 and forward.
  ForwardResult forward(ConstMatrixView x, MatrixView y, const StepPlan* plan, const ExecutionContext& context);
  /// Collective: forward with given routing.
  ForwardResult forward(ConstMatrixView x, const Routing& routing, MatrixView y, const StepPlan* plan,
                        const ExecutionContext& context);

  [[nodiscard]] ModularKernel& kernel() { return *kernel_; }
  [[nodiscard]] const MoeConfig& config() const { return config_; }
  [[nodiscard]] std::int64_t index() const { return layer_; }
  [[nodiscard]] std::int64_t packed_bytes() const;

 private:
  MoeConfig config_;
  std::int64_t layer_;
  AlignedBuffer router_weight_;  // [E, H] f32 (or bf16 as in the checkpoint)
  ConstMatrixView router_view_;
  std::unique_ptr<Router> router_;
  std::shared_ptr<ExpertSlots> slots_;
  std::unique_ptr<ModularKernel> kernel_;
};

}  // namespace epmoe
