#include <algorithm>

#include "epmoe/core/error.hpp"
#include "epmoe/quantize/row_format.hpp"
#include "experts/backends.hpp"
#include "experts/batch_rows.hpp"
#include "experts/reference_ffn.hpp"

namespace epmoe {
namespace {

/// f64 loops over unpacked slots, quantising alike: slow, and what the others are measured by.
class ReferenceExperts final : public Experts {
 public:
  explicit ReferenceExperts(const ExpertsConfig& config) : config_(config) {}
  [[nodiscard]] std::string_view name() const override { return "reference"; }
  [[nodiscard]] std::string_view isa() const override { return "f64"; }
  [[nodiscard]] const ExpertsConfig& config() const override { return config_; }
  [[nodiscard]] PackedLayout packed_layout() const override { return experts::packed_layout_of(config_); }
  [[nodiscard]] WorkspaceShapes workspace_shapes(std::int64_t, std::int64_t) const override { return {}; }

  void apply(const ExpertBatch& batch, const ExpertIndex& index, const ExpertSlots& slots, std::byte*, std::byte*,
             MatrixView output, const ExecutionContext& context) const override {
    experts::check_apply(*this, batch, index, slots, output);
    const BatchRows rows(batch, index);
    const auto expert_count = static_cast<std::int64_t>(index.expert_begin.size()) - 1;
    const PhaseTimer timer(context, Phase::gemm1);  // both GEMMs: they are not worth telling apart here
    context.executor->run(
        expert_count, [&](std::int64_t e, int) { run_expert(batch, index, rows, slots, e, output); }, context.progress);
  }

 private:
  void run_expert(const ExpertBatch& batch, const ExpertIndex& index, const BatchRows& rows, const ExpertSlots& slots,
                  std::int64_t e, const MatrixView& output) const {
    const std::int64_t begin = index.expert_begin[static_cast<std::size_t>(e)];
    const std::int64_t end = index.expert_begin[static_cast<std::size_t>(e) + 1];
    if (begin == end) return;
    const reference::Expert expert = unpack(slots, e);
    const std::int64_t hidden = expert.hidden;
    const bool passed_through = batch.type == DispatchType::int8 && config_.quant.compute == ComputeType::int8;
    constexpr std::int64_t kRowsAtOnce = 32;
    std::vector<float> row(static_cast<std::size_t>(hidden));
    std::vector<double> in(static_cast<std::size_t>(kRowsAtOnce * hidden)), out(in.size());
    for (std::int64_t i0 = begin; i0 < end; i0 += kRowsAtOnce) {
      const std::int64_t count = std::min(kRowsAtOnce, end - i0);
      for (std::int64_t r = 0; r < count; ++r) {
        const std::int64_t from = index.row[static_cast<std::size_t>(i0 + r)];
        decode_hidden(batch.type, rows.row(from), batch.type == DispatchType::int8 ? rows.scale(from) : 1.0F, hidden,
                      row.data());
        if (!passed_through) reference::round_activations(config_.quant.compute, config_.quant.a1, hidden, row.data());
        std::copy(row.begin(), row.end(), in.data() + r * hidden);
      }
      reference::ffn(expert, config_.shape.activation, &config_.quant, count, in.data(), out.data());
      for (std::int64_t r = 0; r < count; ++r) {
        for (std::int64_t c = 0; c < hidden; ++c)
          row[static_cast<std::size_t>(c)] = static_cast<float>(out[static_cast<std::size_t>(r * hidden + c)]);
        write_row(output, index.entry[static_cast<std::size_t>(i0 + r)], row.data());
      }
    }
  }

  [[nodiscard]] static reference::Expert unpack(const ExpertSlots& slots, std::int64_t slot) {
    const PackedLayout& layout = slots.layout();
    reference::Expert expert;
    expert.hidden = layout.hidden;
    expert.intermediate = layout.intermediate;
    const auto elements = static_cast<std::size_t>(layout.hidden * layout.intermediate);
    expert.gate.resize(elements);
    if (layout.gated) expert.up.resize(elements);
    expert.down.resize(elements);
    slots.unpack_gate(slot, expert.gate.data());
    if (layout.gated) slots.unpack_up(slot, expert.up.data());
    slots.unpack_down(slot, expert.down.data());
    if (layout.biases) {
      const auto* biases = reinterpret_cast<const float*>(slots.slot(slot) + layout.bias_offset());
      const auto part = [&](int p, std::int64_t n) {
        const float* first = biases + layout.first_column(p);
        return std::vector<float>(first, first + n);
      };
      expert.gate_bias = part(0, layout.intermediate);
      if (layout.gated) expert.up_bias = part(1, layout.intermediate);
      expert.down_bias = part(2, layout.hidden);
    }
    return expert;
  }

  ExpertsConfig config_;
};

}  // namespace

BackendInfo reference_backend() {
  return {"reference", "f64 loops that quantise alike; slow",
          [](const ExpertsConfig& config) { return experts::supports_quantisation(config); },
          [](const ExpertsConfig& config) -> std::unique_ptr<Experts> {
            return std::make_unique<ReferenceExperts>(config);
          },
          false};
}

}  // namespace epmoe
