#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "epmoe/core/aligned_memory.hpp"
#include "epmoe/core/error.hpp"
#include "epmoe/core/placement.hpp"
#include "epmoe/core/quant_config.hpp"
#include "epmoe/core/tensor_view.hpp"

/// The data that flows between the four stages. Read this first.
namespace epmoe {

/// Stage 1's result, per token of this rank: caller-owned views, never modified.
struct Routing {
  TypedView<const std::int32_t, Token, TopK> ids;  ///< logical experts; kNoExpert anywhere means "none"
  TypedView<const float, Token, TopK> weights;     ///< the weight beside kNoExpert is ignored, whatever it is

  [[nodiscard]] std::int64_t tokens() const { return ids.rows; }
  [[nodiscard]] std::int64_t top_k() const { return ids.cols; }
};

/// Routing that owns its memory.
class OwnedRouting {
 public:
  OwnedRouting(std::int64_t tokens, std::int64_t top_k)
      : top_k_(top_k),
        ids_(static_cast<std::size_t>(tokens * top_k), kNoExpert),
        weights_(static_cast<std::size_t>(tokens * top_k), 0.0F),
        tokens_(tokens) {}
  [[nodiscard]] TypedView<std::int32_t, Token, TopK> ids() { return {ids_.data(), tokens_, top_k_, top_k_}; }
  [[nodiscard]] TypedView<float, Token, TopK> weights() { return {weights_.data(), tokens_, top_k_, top_k_}; }
  [[nodiscard]] Routing view() const {
    return {{ids_.data(), tokens_, top_k_, top_k_}, {weights_.data(), tokens_, top_k_, top_k_}};
  }

 private:
  std::int64_t top_k_;
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_;
  std::int64_t tokens_;
};

/// What every rank of a group knows about one step, agreed by one small exchange; see comm/step_plan.hpp.
/// Decisions that steer communication are functions of this and of the (compared) configuration only.
struct StepPlan {
  std::uint64_t step = 0;
  std::uint64_t placement_epoch = 0;
  std::vector<std::int64_t> tokens;  ///< per rank of the group
  bool micro_batch = false;          ///< every rank voted to split
  bool stop = false;                 ///< some rank asked to stop after this step

  [[nodiscard]] std::int64_t max_tokens() const;
  [[nodiscard]] std::int64_t total_tokens() const;
  /// Index of a rank's first token in the whole step.
  [[nodiscard]] std::int64_t first_token(int rank) const;
};

/// The expert choices of received rows, as compressed rows: entries of row r are [row_begin[r], row_begin[r + 1]).
/// Entries of a row ascend in k. Duplicates of an expert keep their own entries.
struct DispatchedRouting {
  std::vector<std::int64_t> row_begin{0};     ///< [rows + 1]
  std::vector<std::int32_t> local_slot;       ///< [entries] index into this rank's ExpertSlots
  std::vector<std::int32_t> physical_expert;  ///< [entries]
  std::vector<std::int32_t> logical_expert;   ///< [entries]
  std::vector<std::int32_t> k;                ///< [entries] position in the token's top-k list
  std::vector<std::int32_t> shard;            ///< [entries]
  std::vector<float> weight;                  ///< [entries]

  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(row_begin.size()) - 1; }
  [[nodiscard]] std::int64_t entries() const { return row_begin.back(); }
};

/// Counts per local expert (vLLM: ExpertTokensMetadata).
struct ExpertTokensMetadata {
  std::vector<std::int64_t> rows_per_local_expert;
};

/// Rows from one source that lie evenly spaced in memory.
struct Segment {
  const std::byte* rows = nullptr;
  std::int64_t stride_bytes = 0;
  std::int64_t count = 0;
  std::int64_t scale_offset_bytes = 0;  ///< where a row's scale lies from its start (int8 rows)
  std::int32_t source = 0;              ///< rank of the group the rows came from
};

/// Stage 2's result: the rows this rank's experts work on, where they arrived. Segments point into memory of the
/// receipt and are valid until the receipt is finalised (or asked for its next part).
struct ExpertBatch {
  DispatchType type = DispatchType::f32;  ///< number format of the rows
  std::int64_t hidden = 0;
  std::vector<Segment> segments;  ///< in rank order
  DispatchedRouting routing;
  std::int64_t local_experts = 0;  ///< slots this rank owns

  [[nodiscard]] std::int64_t rows() const { return routing.rows(); }
};

/// Where a row of a batch lies: `row` counts through the segments in order.
class RowLocator {
 public:
  explicit RowLocator(const ExpertBatch& batch);
  [[nodiscard]] const std::byte* row(std::int64_t r) const { return rows_[static_cast<std::size_t>(r)]; }
  /// The f32 scale of an int8 row.
  [[nodiscard]] float scale(std::int64_t r) const;

 private:
  std::vector<const std::byte*> rows_;
  std::int64_t scale_offset_bytes_ = 0;
};

/// A range of a batch's rows with its entries sorted by expert: a stable counting sort, so entries of an expert
/// ascend in row, then k.
struct ExpertIndex {
  std::vector<std::int64_t> expert_begin;  ///< [local experts + 1] into the three below
  std::vector<std::int64_t> row;           ///< [entries] row of the batch
  std::vector<std::int64_t> entry;         ///< [entries] position in row order, counted from the range's first entry
  std::int64_t first_row = 0, rows = 0;
  std::int64_t first_entry = 0, entries = 0;
};
ExpertIndex index_by_expert(const ExpertBatch& batch, std::int64_t first_row, std::int64_t rows);

/// What stage 4 needs to bring rows home: made by prepare, used up by finalize. Move-only; a receipt that is
/// dropped tells the other ranks (AbandonedError there), so nobody waits for rows that never come.
class Receipt {
 public:
  /// Strategy-private state. Its destructor runs the abandonment if the receipt was not finalised.
  class State {
   public:
    virtual ~State() = default;
  };
  Receipt() = default;
  Receipt(std::uint64_t owner, std::uint64_t call, std::unique_ptr<State> state)
      : owner_(owner), call_(call), state_(std::move(state)) {}
  [[nodiscard]] bool valid() const { return state_ != nullptr; }
  [[nodiscard]] std::uint64_t owner() const { return owner_; }  ///< which PrepareFinalize made it
  [[nodiscard]] std::uint64_t call() const { return call_; }
  template <class T>
  [[nodiscard]] T& state() {
    return static_cast<T&>(*state_);
  }
  std::unique_ptr<State> release() { return std::move(state_); }

 private:
  std::uint64_t owner_ = 0;
  std::uint64_t call_ = 0;
  std::unique_ptr<State> state_;
};

/// What a forward call answers.
struct ForwardResult {
  std::int64_t tokens = 0;            ///< rows of y written
  std::int64_t rows_received = 0;     ///< rows this rank's experts worked on
  std::int64_t entries_computed = 0;  ///< (row, expert) pairs
  std::int64_t bytes_sent = 0;        ///< to other ranks, dispatch and combine, headers and padding included
  std::int64_t chunks = 0;            ///< pieces the experts stage was cut into
  std::vector<float> lost_weight;     ///< per token: weight of experts that could not be reached; all zero today
};

}  // namespace epmoe
