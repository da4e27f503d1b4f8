#include "experts/onednn/onednn_experts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "epmoe/core/error.hpp"
#include "experts/backends.hpp"
#include "experts/onednn/block_plan.hpp"
#include "experts/onednn/packed_matmul.hpp"
#include "experts/onednn/row_steps.hpp"

namespace epmoe {
namespace {

using onednn::Block;
using onednn::ColumnData;

/// Time of the row steps and products, per worker, reported once by the calling thread.
class PhaseClock {
 public:
  PhaseClock(const ExecutionContext& context, int workers)
      : context_(context), seconds_(context.observer != nullptr ? static_cast<std::size_t>(workers) : 0) {}
  void start(int worker) {
    if (!seconds_.empty()) at(worker).last = context_.clock->now();
  }
  /// What passed since the worker's last call belongs to `phase`.
  void lap(int worker, Phase phase) {
    if (seconds_.empty()) return;
    const double now = context_.clock->now();
    at(worker).sum[static_cast<std::size_t>(phase)] += now - std::exchange(at(worker).last, now);
  }
  /// Each worker's time counts by its share of the workers, so that phases add up to elapsed time.
  void report() const {
    for (const Phase phase : {Phase::permute, Phase::gemm1, Phase::act, Phase::gemm2}) {
      double sum = 0.0;
      for (const auto& worker : seconds_) sum += worker.sum[static_cast<std::size_t>(phase)];
      if (!seconds_.empty()) context_.observer->add_time(phase, sum / static_cast<double>(seconds_.size()));
    }
  }

 private:
  struct alignas(kCacheLineBytes) Worker {
    std::array<double, static_cast<std::size_t>(Phase::count)> sum{};
    double last = 0.0;
  };
  Worker& at(int worker) { return seconds_[static_cast<std::size_t>(worker)]; }

  const ExecutionContext& context_;
  std::vector<Worker> seconds_;
};

/// Scratch rows of one block.
struct Scratch {
  std::byte* input = nullptr;  // gathered rows
  float* gate_up = nullptr;    // first product, then gate's half is the activated row
  std::byte* activated = nullptr;
  float* down = nullptr;  // second product; before that, f32 form of a row to be gathered
  float* input_scale = nullptr;
  float* activated_scale = nullptr;
};

std::string_view name_of(BlockOrder order) {
  switch (order) {
    case BlockOrder::one_by_one: return "onednn_one_by_one";
    case BlockOrder::side_by_side: return "onednn_side_by_side";
    case BlockOrder::automatic: break;
  }
  return "onednn";
}

class OneDnnExperts final : public Experts {
 public:
  OneDnnExperts(const ExpertsConfig& config, std::string implementation, BlockOrder order)
      : config_(config),
        order_(order),
        implementation_(std::move(implementation)),
        layout_(experts::packed_layout_of(config)),
        padded_i_(layout_.padded_n(layout_.intermediate)),
        padded_h_(layout_.padded_n(layout_.hidden)),
        steps_(config),
        gate_up_(layout_.compute, layout_.padded_k(layout_.hidden), layout_.first_column(2)),
        down_(layout_.compute, layout_.padded_k(layout_.intermediate), padded_h_) {}

  [[nodiscard]] std::string_view name() const override { return name_of(order_); }
  [[nodiscard]] std::string_view isa() const override { return implementation_; }
  [[nodiscard]] const ExpertsConfig& config() const override { return config_; }
  [[nodiscard]] PackedLayout packed_layout() const override { return layout_; }

  [[nodiscard]] WorkspaceShapes workspace_shapes(std::int64_t /*rows*/, std::int64_t entries) const override {
    const std::int64_t rows = onednn::max_scratch_rows(entries);
    return {rows * (steps_.input_bytes() + layout_.first_column(2) * kFloat + kFloat),
            rows * (steps_.activated_bytes() + padded_h_ * kFloat + kFloat)};
  }

  void apply(const ExpertBatch& batch, const ExpertIndex& index, const ExpertSlots& slots, std::byte* workspace13,
             std::byte* workspace2, MatrixView output, const ExecutionContext& context) const override {
    experts::check_apply(*this, batch, index, slots, output);
    if (index.entries == 0) return;
    const auto out = output.as<float, Entry, Hidden>();
    const auto plan = onednn::plan_blocks(index);
    const BatchRows rows(batch, index);
    Executor& executor = *context.executor;
    const int workers = executor.workers();
    const bool parallel =
        order_ == BlockOrder::automatic ? onednn::side_by_side(plan, workers) : order_ == BlockOrder::side_by_side;
    PhaseClock clock(context, parallel ? workers : 1);
    const std::int64_t capacity = onednn::max_scratch_rows(index.entries);

    if (parallel) {
      // A worker uses the same rows for all its blocks where they fit, so that they stay in its cache.
      const bool reuse = workers * plan.max_bucket <= capacity;
      executor.run(
          static_cast<std::int64_t>(plan.blocks.size()),
          [&](std::int64_t i, int worker) {
            const Block& block = plan.blocks[static_cast<std::size_t>(i)];
            const onednn::ThreadLimit one(1);
            const auto scratch =
                scratch_at(workspace13, workspace2, capacity, reuse ? worker * plan.max_bucket : block.first_row);
            const auto serial = [](std::int64_t n, FunctionRef<void(std::int64_t)> row) {
              for (std::int64_t r = 0; r < n; ++r) row(r);
            };
            run_block(batch, rows, index, block, slots, scratch, 1, serial, out, clock, worker);
          },
          context.progress);
    } else {
      const auto scratch = scratch_at(workspace13, workspace2, capacity, 0);
      const auto spread = [&](std::int64_t n, FunctionRef<void(std::int64_t)> row) {
        executor.run(n, [&](std::int64_t r, int) { row(r); }, nullptr);
      };
      for (const Block& block : plan.blocks) {
        const onednn::ThreadLimit all(workers);
        run_block(batch, rows, index, block, slots, scratch, workers, spread, out, clock, 0);
        if (context.progress != nullptr) context.progress->progress();
      }
    }
    clock.report();
  }

 private:
  static constexpr std::int64_t kFloat = 4;
  using ForRows = FunctionRef<void(std::int64_t, FunctionRef<void(std::int64_t)>)>;

  /// The rows from `first` on, of arrays that hold `capacity` rows. Every row but the scales is a multiple of 64 bytes.
  Scratch scratch_at(std::byte* workspace13, std::byte* workspace2, std::int64_t capacity, std::int64_t first) const {
    const auto take = [&](std::byte*& from, std::int64_t row_bytes) {
      std::byte* at = from + first * row_bytes;
      from += capacity * row_bytes;
      return at;
    };
    Scratch scratch;
    scratch.input = take(workspace13, steps_.input_bytes());
    scratch.gate_up = reinterpret_cast<float*>(take(workspace13, layout_.first_column(2) * kFloat));
    scratch.input_scale = reinterpret_cast<float*>(take(workspace13, kFloat));
    scratch.activated = take(workspace2, steps_.activated_bytes());
    scratch.down = reinterpret_cast<float*>(take(workspace2, padded_h_ * kFloat));
    scratch.activated_scale = reinterpret_cast<float*>(take(workspace2, kFloat));
    return scratch;
  }

  /// Columns from `first` on of the three parts (gate, up, down) that scales, sums and biases lie in.
  ColumnData columns(const std::byte* slot, std::int64_t first) const {
    ColumnData data;
    if (layout_.compute == ComputeType::int8) {
      data.scale = reinterpret_cast<const float*>(slot + layout_.scale_offset()) + first;
      data.column_sum = reinterpret_cast<const std::int32_t*>(slot + layout_.column_sum_offset()) + first;
    }
    if (layout_.biases) data.bias = reinterpret_cast<const float*>(slot + layout_.bias_offset()) + first;
    return data;
  }

  void run_block(const ExpertBatch& batch, const BatchRows& rows, const ExpertIndex& index, const Block& block,
                 const ExpertSlots& slots, const Scratch& scratch, int threads, ForRows for_rows,
                 TypedView<float, Entry, Hidden> out, PhaseClock& clock, int worker) const {
    const std::byte* slot = slots.slot(block.expert);
    const std::int64_t intermediate = layout_.intermediate;
    const auto entry = [&](std::int64_t r) { return static_cast<std::size_t>(block.begin + r); };
    clock.start(worker);
    for_rows(block.rows, [&](std::int64_t r) {
      scratch.input_scale[r] = steps_.gather(batch.type, rows, index.row[entry(r)], scratch.down + r * padded_h_,
                                             scratch.input + r * steps_.input_bytes());
    });
    const auto clear_padding = [&](std::byte* from, std::int64_t row_bytes) {
      std::memset(from + block.rows * row_bytes, 0, static_cast<std::size_t>((block.bucket - block.rows) * row_bytes));
    };
    clear_padding(scratch.input, steps_.input_bytes());
    clock.lap(worker, Phase::permute);

    gate_up_.run(block.bucket, threads, scratch.input, slot + layout_.gate_offset(),
                 reinterpret_cast<std::byte*>(scratch.gate_up));
    clock.lap(worker, Phase::gemm1);

    const ColumnData gate_columns = columns(slot, 0);
    const ColumnData up_columns = columns(slot, padded_i_);
    for_rows(block.rows, [&](std::int64_t r) {
      float* gate = scratch.gate_up + r * layout_.first_column(2);
      float* up = layout_.gated ? gate + padded_i_ : nullptr;
      steps_.finish(gate_columns, scratch.input_scale[r], intermediate, gate);
      if (layout_.gated) steps_.finish(up_columns, scratch.input_scale[r], intermediate, up);
      scratch.activated_scale[r] = steps_.activate(gate, up, scratch.activated + r * steps_.activated_bytes());
    });
    clear_padding(scratch.activated, steps_.activated_bytes());
    clock.lap(worker, Phase::act);

    down_.run(block.bucket, threads, scratch.activated, slot + layout_.down_offset(),
              reinterpret_cast<std::byte*>(scratch.down));
    const ColumnData down_columns = columns(slot, layout_.first_column(2));
    for_rows(block.rows, [&](std::int64_t r) {
      float* row = scratch.down + r * padded_h_;
      steps_.finish(down_columns, scratch.activated_scale[r], layout_.hidden, row);
      std::memcpy(out.row(index.entry[entry(r)]), row, static_cast<std::size_t>(layout_.hidden * kFloat));
    });
    clock.lap(worker, Phase::gemm2);
  }

  ExpertsConfig config_;
  BlockOrder order_;
  std::string implementation_;
  PackedLayout layout_;
  std::int64_t padded_i_, padded_h_;
  onednn::RowSteps steps_;
  onednn::PackedMatmul gate_up_, down_;
};

/// Refusal, or the name of the implementation for one row (others may differ; each is judged before it is used).
Verdict check(const ExpertsConfig& config, std::string* implementation) {
  if (config.reproducible)
    return Verdict::no("oneDNN promises no fixed order of summation over K for every number of rows");
  if (!config.isa.empty())
    return Verdict::no(fmt::format("oneDNN picks its own kernels; '{}' cannot be forced", config.isa));
  if (auto verdict = experts::supports_quantisation(config); !verdict) return verdict;
  if (config.quant.weights.narrow())
    return Verdict::no(
        fmt::format("{} weights are decoded by the native kernels only", epmoe::name(config.quant.weights)));
  const PackedLayout layout = experts::packed_layout_of(config);
  constexpr std::int64_t kMaxInt8 = std::int64_t{0x7fffffff} / (255 * 127);  // unsigned rows sum up in 32 bits
  if (layout.compute == ComputeType::int8 && std::max(layout.hidden, layout.intermediate) > kMaxInt8)
    return Verdict::no(fmt::format("int8 sums over {} values can pass 2^31, at most {} fit",
                                   std::max(layout.hidden, layout.intermediate), kMaxInt8));
  const std::pair<std::int64_t, std::int64_t> products[] = {
      {layout.padded_k(layout.hidden), layout.first_column(2)},
      {layout.padded_k(layout.intermediate), layout.padded_n(layout.hidden)}};
  for (const auto& [k, n] : products)
    for (const std::int64_t rows : {onednn::kMaxBlockRows, std::int64_t{16}, std::int64_t{2}, std::int64_t{1}})
      if (auto verdict = onednn::probe(layout.compute, rows, k, n, implementation); !verdict) return verdict;
  return Verdict::yes();
}

}  // namespace

Verdict supports_onednn(const ExpertsConfig& config) {
  return check(config, nullptr);
}

std::unique_ptr<Experts> make_onednn(const ExpertsConfig& config, BlockOrder order) {
  std::string implementation;
  if (const auto verdict = check(config, &implementation); !verdict)
    throw ConfigError(fmt::format("experts back end onednn: {}", verdict.reason));
  return std::make_unique<OneDnnExperts>(config, std::move(implementation), order);
}

namespace {
template <BlockOrder order>
BackendInfo row(std::string_view purpose) {
  return {name_of(order), purpose, supports_onednn,
          [](const ExpertsConfig& config) { return make_onednn(config, order); }, order == BlockOrder::automatic};
}
}  // namespace

std::vector<BackendInfo> onednn_backends() {
  return {row<BlockOrder::automatic>("oneDNN's blocked matrix products; not for reproducible sums"),
          row<BlockOrder::one_by_one>("the same, all threads in each product"),
          row<BlockOrder::side_by_side>("the same, one thread a product")};
}

}  // namespace epmoe
