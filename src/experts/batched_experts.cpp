#include "epmoe/experts/batched_experts.hpp"

namespace epmoe {
namespace {

/// The back end's loops follow the index, whose rows and entries are places in the padded form here; so only what is
/// declared changes.
class BatchedExperts final : public Experts {
 public:
  explicit BatchedExperts(std::unique_ptr<Experts> inner) : inner_(std::move(inner)) {}
  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] std::string_view isa() const override { return inner_->isa(); }
  [[nodiscard]] const ExpertsConfig& config() const override { return inner_->config(); }
  [[nodiscard]] ActivationFormats activation_formats() const override {
    return {ActivationFormat::batched_experts, ActivationFormat::batched_experts};
  }
  [[nodiscard]] bool supports_chunking() const override { return inner_->supports_chunking(); }
  [[nodiscard]] bool supports_expert_map() const override { return inner_->supports_expert_map(); }
  [[nodiscard]] DType workspace_dtype() const override { return inner_->workspace_dtype(); }
  [[nodiscard]] WeightAndReduceKind finalize_weight_and_reduce() const override {
    return WeightAndReduceKind::naive_batched;
  }
  [[nodiscard]] PackedLayout packed_layout() const override { return inner_->packed_layout(); }
  [[nodiscard]] WorkspaceShapes workspace_shapes(std::int64_t rows, std::int64_t entries) const override {
    return inner_->workspace_shapes(rows, entries);
  }
  void apply(const ExpertBatch& batch, const ExpertIndex& index, const ExpertSlots& slots, std::byte* workspace13,
             std::byte* workspace2, MatrixView output, const ExecutionContext& context) const override {
    inner_->apply(batch, index, slots, workspace13, workspace2, output, context);
  }

 private:
  std::unique_ptr<Experts> inner_;
};

}  // namespace

std::unique_ptr<Experts> make_batched_experts(std::unique_ptr<Experts> experts) {
  return std::make_unique<BatchedExperts>(std::move(experts));
}

}  // namespace epmoe
