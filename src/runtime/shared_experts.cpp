#include "epmoe/runtime/shared_experts.hpp"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "runtime/chunks.hpp"

namespace epmoe {
namespace {

DispatchType rows_as(DType dtype) {
  switch (dtype) {
    case DType::f32: return DispatchType::f32;
    case DType::f16: return DispatchType::f16;
    case DType::bf16: return DispatchType::bf16;
    default: throw InputError(fmt::format("shared experts: x is {}, wanted f32, f16 or bf16", name(dtype)));
  }
}

/// x itself as a batch: every row goes to slot 0 with weight 1. Nothing is copied.
ExpertBatch batch_over(ConstMatrixView x) {
  ExpertBatch batch;
  batch.type = rows_as(x.dtype);
  batch.hidden = x.cols;
  batch.local_experts = 1;
  batch.segments.push_back({static_cast<const std::byte*>(x.data), x.stride * size_bytes(x.dtype), x.rows, 0, 0});
  auto& routing = batch.routing;
  const auto rows = static_cast<std::size_t>(x.rows);
  routing.row_begin.resize(rows + 1);
  for (std::size_t r = 0; r <= rows; ++r) routing.row_begin[r] = static_cast<std::int64_t>(r);
  routing.local_slot.assign(rows, 0);
  routing.physical_expert.assign(rows, 0);
  routing.logical_expert.assign(rows, 0);
  routing.k.assign(rows, 0);
  routing.shard.assign(rows, 0);
  routing.weight.assign(rows, 1.0F);
  return batch;
}

}  // namespace

SharedExperts::SharedExperts(std::shared_ptr<const Experts> experts, std::shared_ptr<const ExpertSlots> slots,
                             std::vector<float> gate)
    : experts_(std::move(experts)), slots_(std::move(slots)), gate_(std::move(gate)) {
  const auto hidden = experts_->config().shape.hidden;
  if (!gate_.empty() && static_cast<std::int64_t>(gate_.size()) != hidden)
    throw ConfigError(fmt::format("shared expert gate has {} values, wanted hidden = {}", gate_.size(), hidden));
}

void SharedExperts::apply(ConstMatrixView x, MatrixView out, const ExecutionContext& context) const {
  const auto timer = PhaseTimer(context, Phase::shared);
  auto inner = context;
  inner.observer = nullptr;  // its gemm time is shared time, not the routed experts'
  const auto batch = batch_over(x);
  for (const auto& chunk : cut_chunks(batch.routing, chunk_limits(*experts_, KernelConfig{}))) {
    const auto index = index_by_expert(batch, chunk.first_row, chunk.rows);
    const auto shapes = experts_->workspace_shapes(index.rows, index.entries);
    const auto first = round_up(shapes.workspace13_bytes, kCacheLineBytes);
    auto* scratch = context.workspaces->shared.get(first + shapes.workspace2_bytes);
    experts_->apply(batch, index, *slots_, scratch, scratch + first, out.slice(chunk.first_row, chunk.rows), inner);
  }
  if (gate_.empty()) return;
  const auto rows = out.as<float, Token, Hidden>();
  context.executor->run(
      x.rows,
      [&](std::int64_t t, int) {
        // f64, so that the gate does not depend on how a compiler vectorises the sum
        std::vector<float> values(gate_.size());
        read_row(x, t, values.data());
        double dot = 0.0;
        for (std::size_t i = 0; i < values.size(); ++i)
          dot += static_cast<double>(values[i]) * static_cast<double>(gate_[i]);
        const auto scale = static_cast<float>(1.0 / (1.0 + std::exp(-dot)));
        auto* row = rows.row(t);
        for (std::int64_t i = 0; i < rows.cols; ++i) row[i] *= scale;
      },
      context.progress);
}

}  // namespace epmoe
