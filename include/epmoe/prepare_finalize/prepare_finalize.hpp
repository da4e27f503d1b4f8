#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epmoe/comm/expert_group.hpp"
#include "epmoe/core/experts_traits.hpp"
#include "epmoe/core/stage_data.hpp"
#include "epmoe/quantize/row_format.hpp"

/// Stages 2 and 4 in one object, because combine must undo exactly the trip that dispatch made.
///
/// Every call is collective over the group: all ranks make the same calls in the same order, with zero tokens too.
/// Strategies hold no per-call state (the receipt and the pending objects do), so several calls may be in flight.
/// One thread at a time per group.
namespace epmoe {

/// Equal on all ranks; compared when the strategy is made.
struct PrepareFinalizeConfig {
  std::int64_t hidden = 0;
  std::int64_t top_k = 0;
  std::int64_t experts = 0;
  DispatchType dispatch = DispatchType::f32;
  CombineType combine = CombineType::f32;
  bool reproducible = false;                 ///< one f32 row per (token, k), added at the source in ascending k
  bool router_weight_on_input = false;       ///< top_k 1 only
  std::int64_t max_num_tokens_per_rank = 0;  ///< 0 = unbounded
  /// Throws ConfigError: reproducible with a combine type other than f32, weight on input with top_k > 1, …
  void validate() const;
};

/// What the owner must bring home for each received row.
enum class OutputRows : std::uint8_t {
  per_row,    ///< weighted and summed over the row's entries, [rows, hidden]
  per_entry,  ///< weighted, not summed, [entries, hidden] in row order (reproducible mode)
};

struct PrepareInput {
  ConstMatrixView x;  ///< [tokens, hidden] f32, f16 or bf16
  Routing routing;    ///< [tokens, top_k], logical ids
  std::shared_ptr<const Placement> placement;
  const StepPlan* plan = nullptr;       ///< tokens per rank of *this* call (a slice's plan for a slice)
  std::int64_t global_first_token = 0;  ///< index in the whole step of this rank's first token here
  std::int64_t layer = -1;
  ErrorCode failure = ErrorCode::none;  ///< a fault the caller found on this rank: it travels instead of rows
};

/// One part of what the experts have to do.
struct Prepared {
  ExpertBatch batch;
  Receipt receipt;    ///< only set by PendingDispatch::receive
  bool more = false;  ///< further parts follow, through next_part
  std::optional<ExpertTokensMetadata> expert_tokens;
};

/// A dispatch under way. x and routing may be changed as soon as prepare_async has returned. Dropping it unreceived
/// abandons the call: all ranks throw AbandonedError.
class PendingDispatch {
 public:
  virtual ~PendingDispatch() = default;
  /// Never blocks; true once everything has arrived.
  virtual bool poll() = 0;
  /// Waits until everything has arrived; copies nothing. Idempotent.
  virtual void hook() = 0;
  /// hook(), then hands the rows over. Throws the error any rank reported, the same on every rank. Once only.
  virtual Prepared receive() = 0;
};

/// A combine under way; the output is complete, and valid to read, after receive(). Dropping it is harmless: the peers
/// get their rows, this rank's are lost.
class PendingCombine {
 public:
  virtual ~PendingCombine() = default;
  virtual bool poll() = 0;
  virtual void hook() = 0;
  /// hook(), then writes every row of the output given to finalize_async. Idempotent.
  virtual void receive() = 0;
};

/// What the experts produced for a part, f32, in the row order of its batch; see OutputRows. Or a failure, which
/// then travels to all ranks instead of rows.
struct ExpertOutput {
  ConstMatrixView rows;
  ErrorCode failure = ErrorCode::none;
};

class PrepareFinalize {
 public:
  virtual ~PrepareFinalize() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual ActivationFormat activation_format() const { return ActivationFormat::standard; }
  [[nodiscard]] virtual DType topk_index_dtype() const { return DType::i32; }
  /// The most tokens a rank may bring to one call; nullopt = no bound.
  [[nodiscard]] virtual std::optional<std::int64_t> max_num_tokens_per_rank() const { return std::nullopt; }
  [[nodiscard]] virtual int num_dispatchers() const = 0;
  /// Whether y is fully summed when finalize returns. Every strategy here does that.
  [[nodiscard]] virtual bool output_is_reduced() const { return true; }
  [[nodiscard]] virtual bool supports_async() const = 0;
  [[nodiscard]] virtual OutputRows output_rows() const = 0;
  [[nodiscard]] virtual const PrepareFinalizeConfig& config() const = 0;
  /// Told once which experts part it works with. Throws ConfigError if the two do not fit.
  virtual void post_init_setup(const ExpertsTraits& experts) = 0;

  /// Checks ids and shapes, encodes and starts sending, then returns. A rank whose input is bad still takes part
  /// (with an error header), and every rank throws when it receives.
  [[nodiscard]] virtual std::unique_ptr<PendingDispatch> prepare_async(const PrepareInput& input,
                                                                       const ExecutionContext& context) = 0;
  [[nodiscard]] Prepared prepare(const PrepareInput& input, const ExecutionContext& context) {
    return prepare_async(input, context)->receive();
  }
  /// Returns the outputs of the part just computed and gets the next one; only while `more` was true. How receive
  /// memory stays bounded: what exceeds a peer's capacity waits at its source until the rows before it went home.
  /// After a failure there is nothing more to compute: the part that comes back is empty and the last.
  [[nodiscard]] virtual Prepared next_part(Receipt& receipt, const ExpertOutput& output,
                                           const ExecutionContext& context) = 0;
  /// Sends the last part's outputs home and starts collecting this rank's rows into y [tokens, hidden] f32, which
  /// must stay alive until received. `routing` is the original routing. Uses the receipt up; a receipt of another
  /// object or call, or one with parts left and no failure, is an InputError (and abandons the receipt's call).
  [[nodiscard]] virtual std::unique_ptr<PendingCombine> finalize_async(Receipt receipt, const Routing& routing,
                                                                       const ExpertOutput& output, MatrixView y,
                                                                       const ExecutionContext& context) = 0;
  void finalize(Receipt receipt, const Routing& routing, const ExpertOutput& output, MatrixView y,
                const ExecutionContext& context) {
    finalize_async(std::move(receipt), routing, output, y, context)->receive();
  }
};

}  // namespace epmoe
