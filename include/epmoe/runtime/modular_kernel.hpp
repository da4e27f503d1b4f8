#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "epmoe/experts/experts.hpp"
#include "epmoe/prepare_finalize/prepare_finalize.hpp"
#include "epmoe/runtime/shared_experts.hpp"

/// The four stages in order, with exchangeable parts (vLLM: FusedMoEModularKernel).
namespace epmoe {

struct KernelConfig {
  bool chunking = true;                           ///< cut the experts stage into chunks
  std::int64_t chunk_rows = 16384;                ///< most rows per chunk (vLLM: VLLM_FUSED_MOE_CHUNK_SIZE)
  std::int64_t chunk_budget_bytes = 256LL << 20;  ///< most workspace per chunk
  std::int64_t pipeline = 1;                      ///< token slices in flight inside one call
  std::int64_t shared_token_threshold = 256;      ///< shared experts overlap at or below, run after above
  std::int64_t global_num_experts = -1;           ///< -1: the placement's
  void validate() const;
};

struct ForwardInput {
  ConstMatrixView x;                           ///< [tokens, hidden] f32, f16 or bf16; never modified
  Routing routing;                             ///< logical ids
  const StepPlan* plan = nullptr;              ///< null: the call agrees on one by itself
  std::shared_ptr<const Placement> placement;  ///< null: the kernel's
  std::int64_t layer = -1;
};

/// Routed and shared parts apart, on request.
struct SplitOutput {
  MatrixView shared;
  MatrixView routed;
};

class ModularKernel {
 public:
  /// Throws ConfigError if the parts do not fit (activation formats, token limits, weight and reduce, experts).
  ModularKernel(std::shared_ptr<comm::ExpertGroup> group, std::shared_ptr<PrepareFinalize> prepare_finalize,
                std::shared_ptr<const Experts> experts, std::shared_ptr<const ExpertSlots> slots,
                std::shared_ptr<const Placement> placement, const KernelConfig& config,
                std::shared_ptr<const SharedExperts> shared = nullptr);

  /// Collective. y [tokens, hidden] f32 or bf16 must not overlap x (InputError). Every row of y is written; a row
  /// without experts is zero plus its shared experts. An error on any rank is thrown on all.
  ForwardResult forward(const ForwardInput& input, MatrixView y, const ExecutionContext& context);
  /// y is x itself; refused (InputError) with shared experts, which need the original x.
  ForwardResult forward_in_place(const Routing& routing, MatrixView x, const StepPlan* plan, std::int64_t layer,
                                 const ExecutionContext& context);
  /// The (shared, routed) pair instead of their sum.
  ForwardResult forward_split(const ForwardInput& input, SplitOutput y, const ExecutionContext& context);

  /// Rows per chunk and workspace bytes for a batch of `rows` with `entries`: a pure function.
  struct ChunkInfo {
    std::int64_t chunks = 0;  ///< at least this many; rows are not cut
    std::int64_t rows_per_chunk = 0, entries_per_chunk = 0;
    WorkspaceShapes workspace;
  };
  [[nodiscard]] ChunkInfo chunk_info(std::int64_t rows, std::int64_t entries) const;
  /// Allocates the worst case for `max_tokens_per_rank` on every rank into a workspace set, then locks it.
  void reserve(WorkspaceSet& workspaces, std::int64_t max_tokens_per_rank) const;

  [[nodiscard]] const PrepareFinalize& prepare_finalize() const { return *prepare_finalize_; }
  [[nodiscard]] const Experts& experts() const { return *experts_; }
  [[nodiscard]] std::int64_t global_num_experts() const;

 private:
  ForwardResult run(const ForwardInput& input, MatrixView routed, MatrixView shared_out,
                    const ExecutionContext& context, ErrorCode failure = ErrorCode::none);
  ForwardResult forward_into(const ForwardInput& input, MatrixView y, const ExecutionContext& context);
  void check_outputs(const ForwardInput& input, std::initializer_list<MatrixView> outputs,
                     const ExecutionContext& context);
  ExpertOutput run_experts(const ExpertBatch& batch, const ExecutionContext& context, ForwardResult& result) const;
  void weigh_entries(const ExpertBatch& batch, const ExpertIndex& index, ConstMatrixView entries,
                     const ExpertIndex* padded, MatrixView out, bool skip_weights,
                     const ExecutionContext& context) const;
  [[noreturn]] void fail_with_all(const ForwardInput& input, const Error& error, const ExecutionContext& context);
  void check_placement(const Placement& placement) const;
  void check_output(const ForwardInput& input, MatrixView y, bool bf16_allowed) const;
  std::shared_ptr<comm::ExpertGroup> group_;
  std::shared_ptr<PrepareFinalize> prepare_finalize_;
  std::shared_ptr<const Experts> experts_;
  std::shared_ptr<const ExpertSlots> slots_;
  std::shared_ptr<const Placement> placement_;
  KernelConfig config_;
  std::shared_ptr<const SharedExperts> shared_;
};

}  // namespace epmoe
