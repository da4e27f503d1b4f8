#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "epmoe/core/execution_context.hpp"
#include "epmoe/core/random.hpp"
#include "epmoe/experts/experts.hpp"
#include "epmoe/experts/reference.hpp"
#include "epmoe/quantize/row_format.hpp"
#include "experts/kernels/kernel_set.hpp"

/// Seeded experts and batches, and a way to run a back end that notices what it should not read or write.
namespace epmoe::test {

/// A random matrix in a checkpoint dtype that starts `shift` bytes past an aligned address.
class RandomMatrix {
 public:
  RandomMatrix() = default;
  RandomMatrix(std::uint64_t seed, DType dtype, std::int64_t rows, std::int64_t cols, float scale,
               std::int64_t shift = 0)
      : dtype_(dtype),
        rows_(rows),
        cols_(cols),
        shift_(shift),
        bytes_(static_cast<std::size_t>(rows * cols * size_bytes(dtype) + shift)) {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) {
        const float value = scale * random_normal(seed, static_cast<std::uint64_t>(r), static_cast<std::uint64_t>(c));
        std::byte* at = bytes_.data() + shift + (r * cols + c) * size_bytes(dtype);
        if (dtype == DType::f32) std::memcpy(at, &value, 4);
        const auto half = dtype == DType::f16 ? to_f16(value).bits : to_bf16(value).bits;
        if (dtype != DType::f32) std::memcpy(at, &half, 2);
      }
  }
  [[nodiscard]] ConstMatrixView view() const {
    if (rows_ == 0) return {};
    return {bytes_.data() + shift_, dtype_, rows_, cols_, cols_, MemorySpace::host};
  }

 private:
  DType dtype_ = DType::f32;
  std::int64_t rows_ = 0, cols_ = 0, shift_ = 0;
  std::vector<std::byte> bytes_;
};

/// N(0, 1) in [rows, hidden].
inline std::vector<float> random_rows(std::int64_t rows, std::int64_t hidden, std::uint64_t seed = 7) {
  std::vector<float> x(static_cast<std::size_t>(rows * hidden));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < hidden; ++c)
      x[static_cast<std::size_t>(r * hidden + c)] =
          random_normal(seed, static_cast<std::uint64_t>(r), static_cast<std::uint64_t>(c));
  return x;
}

struct Shape {
  std::int64_t hidden, intermediate;
};

struct RandomExpert {
  RandomExpert(std::uint64_t seed, Shape s, DType dtype, bool biases, std::int64_t shift = 0, bool gated = true) {
    const auto scale = [](std::int64_t fan_in) { return 1.5F / std::sqrt(static_cast<float>(fan_in)); };
    gate = RandomMatrix(seed, dtype, s.intermediate, s.hidden, scale(s.hidden), shift);
    if (gated) up = RandomMatrix(seed + 1, dtype, s.intermediate, s.hidden, scale(s.hidden), shift);
    down = RandomMatrix(seed + 2, dtype, s.hidden, s.intermediate, scale(s.intermediate), shift);
    if (!biases) return;
    gate_bias = RandomMatrix(seed + 3, dtype, 1, s.intermediate, 0.5F, shift);
    if (gated) up_bias = RandomMatrix(seed + 4, dtype, 1, s.intermediate, 0.5F, shift);
    down_bias = RandomMatrix(seed + 5, dtype, 1, s.hidden, 0.5F, shift);
  }
  [[nodiscard]] ExpertWeights weights() const {
    return {gate.view(), up.view(), down.view(), gate_bias.view(), up_bias.view(), down_bias.view()};
  }
  RandomMatrix gate, up, down, gate_bias, up_bias, down_bias;
};

struct RandomExperts {
  RandomExperts(std::int64_t count, Shape shape, DType dtype, bool biases, std::int64_t shift = 0, bool gated = true) {
    for (std::int64_t e = 0; e < count; ++e)
      experts.emplace_back(static_cast<std::uint64_t>(100 + 10 * e), shape, dtype, biases, shift, gated);
  }
  [[nodiscard]] ExpertSlots pack(const PackedLayout& layout) const {
    ExpertSlots slots(layout, static_cast<std::int64_t>(experts.size()));
    for (std::size_t e = 0; e < experts.size(); ++e) slots.pack(static_cast<std::int64_t>(e), experts[e].weights());
    return slots;
  }
  std::vector<RandomExpert> experts;
};

/// Rows as they come from the wire, in two segments with a gap, and the experts each row goes to.
class TestBatch {
 public:
  /// `choices[row]` are local experts; `x` [rows, hidden].
  TestBatch(ConstMatrixView x, DispatchType type, std::int64_t local_experts,
            const std::vector<std::vector<std::int32_t>>& choices)
      : format_(type, x.cols, 2), stride_(format_.row_bytes() + 64), bytes_(AlignedBuffer(x.rows * stride_ + kGap)) {
    std::memset(bytes_.data(), 0xff, static_cast<std::size_t>(bytes_.size()));  // NaN wherever nothing was sent
    const std::int64_t first = x.rows / 3;
    for (std::int64_t r = 0; r < x.rows; ++r)
      format_.encode(x, r, 1.0F, bytes_.data() + r * stride_ + (r >= first ? kGap : 0));
    batch.type = type;
    batch.hidden = x.cols;
    batch.local_experts = local_experts;
    batch.segments = {
        {bytes_.data(), stride_, first, format_.scale_offset_bytes(), 0},
        {bytes_.data() + first * stride_ + kGap, stride_, x.rows - first, format_.scale_offset_bytes(), 1}};
    for (std::int64_t r = 0; r < x.rows; ++r) {
      const auto& row = choices[static_cast<std::size_t>(r)];
      for (std::size_t k = 0; k < row.size(); ++k) {
        batch.routing.local_slot.push_back(row[k]);
        batch.routing.physical_expert.push_back(row[k]);
        batch.routing.logical_expert.push_back(row[k]);
        batch.routing.k.push_back(static_cast<std::int32_t>(k));
        batch.routing.shard.push_back(0);
        batch.routing.weight.push_back(1.0F);
        entry_row.push_back(r);
      }
      batch.routing.row_begin.push_back(static_cast<std::int64_t>(batch.routing.local_slot.size()));
    }
  }
  ExpertBatch batch;
  std::vector<std::int64_t> entry_row;  ///< row of each entry, in row order

 private:
  static constexpr std::int64_t kGap = 128;
  DispatchRowFormat format_;
  std::int64_t stride_;
  AlignedBuffer bytes_;
};

/// Workspaces of exactly the size asked for, full of NaN, with bytes behind them that must stay as they are.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::int64_t bytes) : bytes_(bytes), buffer_(bytes + kGuard) {
    std::memset(buffer_.data(), 0xff, static_cast<std::size_t>(bytes));
    std::memset(buffer_.data() + bytes, 0x5a, kGuard);
  }
  std::byte* data() { return buffer_.data(); }
  [[nodiscard]] bool intact() const {
    for (std::int64_t i = 0; i < kGuard; ++i)
      if (buffer_.data()[bytes_ + i] != std::byte{0x5a}) return false;
    return true;
  }

 private:
  static constexpr std::int64_t kGuard = 256;
  std::int64_t bytes_;
  AlignedBuffer buffer_;
};

struct RunResult {
  std::vector<float> rows;  ///< [entries, hidden] in row order
  bool guards_intact = true;
};

/// Applies a back end to the whole batch, `chunk` rows at a time (0: all).
inline RunResult run(const Experts& experts, const ExpertBatch& batch, const ExpertSlots& slots,
                     const ExecutionContext& context, std::int64_t chunk = 0) {
  RunResult result;
  const std::int64_t hidden = batch.hidden;
  result.rows.assign(static_cast<std::size_t>(batch.routing.entries() * hidden),
                     std::numeric_limits<float>::quiet_NaN());
  const std::int64_t step = chunk > 0 ? chunk : std::max<std::int64_t>(batch.rows(), 1);
  for (std::int64_t first = 0; first < batch.rows(); first += step) {
    const ExpertIndex index = index_by_expert(batch, first, std::min(step, batch.rows() - first));
    const WorkspaceShapes shapes = experts.workspace_shapes(index.rows, index.entries);
    GuardedBuffer workspace13(shapes.workspace13_bytes), workspace2(shapes.workspace2_bytes);
    const std::int64_t stride = hidden + 3;  // an output with a leading dimension, whose gaps must stay
    GuardedBuffer output(index.entries * stride * 4);
    auto* out = reinterpret_cast<float*>(output.data());
    experts.apply(batch, index, slots, workspace13.data(), workspace2.data(),
                  matrix_view(out, index.entries, hidden, stride), context);
    for (std::int64_t e = 0; e < index.entries; ++e) {
      std::memcpy(result.rows.data() + (index.first_entry + e) * hidden, out + e * stride,
                  static_cast<std::size_t>(hidden) * 4);
      std::uint32_t gap[3];
      std::memcpy(gap, out + e * stride + hidden, sizeof gap);
      result.guards_intact =
          result.guards_intact && gap[0] == 0xffffffffU && gap[1] == 0xffffffffU && gap[2] == 0xffffffffU;
    }
    result.guards_intact = result.guards_intact && workspace13.intact() && workspace2.intact() && output.intact();
  }
  return result;
}

/// What the f64 reference gives for every entry of a batch.
inline std::vector<double> reference_entries(const ExpertsConfig& config, DispatchType dispatch, ConstMatrixView x,
                                             const TestBatch& batch, const RandomExperts& experts,
                                             bool quantise_alike = true) {
  ReferenceConfig reference;
  reference.shape = config.shape;
  reference.shape.top_k = 1;
  reference.quant = config.quant;
  reference.dispatch = dispatch;
  reference.quantise_alike = quantise_alike;
  const std::int64_t entries = batch.batch.routing.entries();
  std::vector<float> rows(static_cast<std::size_t>(entries * x.cols));
  OwnedRouting routing(entries, 1);
  for (std::int64_t e = 0; e < entries; ++e) {
    read_row(x, batch.entry_row[static_cast<std::size_t>(e)], rows.data() + e * x.cols);
    routing.ids()(e, 0) = batch.batch.routing.local_slot[static_cast<std::size_t>(e)];
    routing.weights()(e, 0) = 1.0F;
  }
  return reference_moe(reference, const_matrix_view(rows.data(), entries, x.cols), routing.view(),
                       [&](std::int32_t id) { return experts.experts[static_cast<std::size_t>(id)].weights(); });
}

inline ExpertsConfig experts_config(Shape shape, ComputeType compute, Activation activation, bool biases,
                                    std::int64_t local_experts, std::string isa = {}) {
  ExpertsConfig config;
  config.shape.hidden = shape.hidden;
  config.shape.intermediate = shape.intermediate;
  config.shape.experts = local_experts;
  config.shape.top_k = 2;
  config.shape.activation = activation;
  config.quant = QuantConfig::for_compute(compute);
  config.quant.w1_bias = config.quant.w2_bias = biases;
  config.local_experts = local_experts;
  config.isa = std::move(isa);
  return config;
}

/// Names of the kernel sets that run here.
inline std::vector<std::string> isas() {
  std::vector<std::string> names;
  const kernels::KernelTable table = kernels::kernel_table();
  for (std::int64_t i = 0; i < table.count; ++i)
    if (kernels::find_kernel_set(table.sets[i].name) != nullptr) names.emplace_back(table.sets[i].name);
  return names;
}

/// Row r goes to experts r and 2 r + 1, modulo their number.
inline std::vector<std::vector<std::int32_t>> two_choices(std::int64_t rows, std::int64_t experts) {
  std::vector<std::vector<std::int32_t>> choices;
  for (std::int64_t r = 0; r < rows; ++r)
    choices.push_back({static_cast<std::int32_t>(r % experts), static_cast<std::int32_t>((2 * r + 1) % experts)});
  return choices;
}

inline constexpr ComputeType kComputeTypes[] = {ComputeType::f32, ComputeType::bf16, ComputeType::int8};

/// f32, bf16, int8, then every narrow format.
inline std::vector<QuantConfig> all_formats() {
  std::vector<QuantConfig> formats;
  for (const ComputeType compute : kComputeTypes) formats.push_back(QuantConfig::for_compute(compute));
  for (const QuantConfig& format : narrow_quant_configs()) formats.push_back(format);
  return formats;
}

}  // namespace epmoe::test
