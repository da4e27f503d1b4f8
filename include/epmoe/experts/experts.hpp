#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "epmoe/core/execution_context.hpp"
#include "epmoe/core/experts_traits.hpp"
#include "epmoe/core/moe_config.hpp"
#include "epmoe/core/stage_data.hpp"
#include "epmoe/experts/expert_slots.hpp"

/// Stage 3: rows in, rows out; no communication. Objects hold no per-call state and serve all layers of equal shape.
namespace epmoe {

struct ExpertsConfig {
  MoeConfig shape;  ///< hidden, intermediate, activation, …
  QuantConfig quant;
  std::int64_t local_experts = 0;
  std::string isa;            ///< kernel set by name; empty = the best for this CPU
  bool reproducible = false;  ///< sums over K must not depend on M, threads or chunks
};

/// Bytes of scratch memory for one chunk; a pure function of what is asked.
struct WorkspaceShapes {
  std::int64_t workspace13_bytes = 0;
  std::int64_t workspace2_bytes = 0;
};

/// The problem of one call (vLLM: moe_problem_size); a back end may override how it is read from a batch.
struct ProblemSize {
  std::int64_t local_experts = 0, rows = 0, entries = 0;
  std::int64_t intermediate = 0, hidden = 0, top_k = 0;
};

class Experts {
 public:
  virtual ~Experts() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// "avx512", "generic", … : which kernels run.
  [[nodiscard]] virtual std::string_view isa() const = 0;
  [[nodiscard]] virtual const ExpertsConfig& config() const = 0;
  [[nodiscard]] virtual ActivationFormats activation_formats() const { return {}; }
  [[nodiscard]] virtual bool supports_chunking() const { return true; }
  [[nodiscard]] virtual bool supports_expert_map() const { return true; }
  [[nodiscard]] virtual DType workspace_dtype() const { return DType::f32; }
  [[nodiscard]] virtual Activation activation() const { return config().shape.activation; }
  [[nodiscard]] virtual WeightAndReduceKind finalize_weight_and_reduce() const {
    return WeightAndReduceKind::contiguous;
  }
  [[nodiscard]] virtual ProblemSize problem_size(const ExpertBatch& batch, const ExpertIndex& index) const;
  /// How this back end wants weights packed.
  [[nodiscard]] virtual PackedLayout packed_layout() const = 0;
  /// For a chunk of `rows` rows with `entries` (row, expert) pairs.
  [[nodiscard]] virtual WorkspaceShapes workspace_shapes(std::int64_t rows, std::int64_t entries) const = 0;
  /// Runs the chunk `index` of `batch`: output[entry] = expert(row), f32 [index.entries, hidden], unweighted, in row
  /// order (position index.entry[i]). Empty experts cost nothing. `output` does not alias the workspaces.
  virtual void apply(const ExpertBatch& batch, const ExpertIndex& index, const ExpertSlots& slots,
                     std::byte* workspace13, std::byte* workspace2, MatrixView output,
                     const ExecutionContext& context) const = 0;
  [[nodiscard]] ExpertsTraits traits() const {
    return {activation_formats(), finalize_weight_and_reduce(), config().local_experts};
  }
};

/// One row of the one table of back ends.
struct BackendInfo {
  std::string_view name;  ///< "native", "onednn", "onednn_one_by_one", "onednn_side_by_side", "reference"
  std::string_view purpose;
  Verdict (*supports)(const ExpertsConfig& config);
  std::unique_ptr<Experts> (*make)(const ExpertsConfig& config);
  bool automatic = true;  ///< whether `auto` may take it
};
std::vector<BackendInfo> backends();

/// `name` "auto" takes the first that supports `config` and logs each refusal at debug level; a named one that does
/// not is a ConfigError with its reason; an unknown name is answered with the known.
std::unique_ptr<Experts> make_experts(std::string_view name, const ExpertsConfig& config,
                                      const ExecutionContext& context);

/// ComputeType `auto`: the checkpoint's type where a fast kernel for it exists on this CPU, else f32.
ComputeType resolve_compute_type(DType checkpoint, std::string* reason);

}  // namespace epmoe
