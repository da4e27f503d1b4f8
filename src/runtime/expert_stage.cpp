#include "runtime/expert_stage.hpp"

#include <exception>

#include "epmoe/prepare_finalize/batched_adaptor.hpp"
#include "runtime/chunks.hpp"

namespace epmoe {
namespace {

/// The padded form of a chunk as a batch of its own: row (e, i) is row e * max_rows + i, and so is its output.
struct PaddedForm {
  ExpertBatch batch;
  ExpertIndex index;
  BatchedRows rows;
};

PaddedForm padded_form(const ExpertBatch& batch, const ExpertIndex& index) {
  PaddedForm form;
  std::int64_t most = 0;
  for (std::size_t e = 0; e + 1 < index.expert_begin.size(); ++e)
    most = std::max(most, index.expert_begin[e + 1] - index.expert_begin[e]);
  form.rows = to_batched(batch, index, most);
  const auto rows = batch.local_experts * most;
  form.batch.type = batch.type;
  form.batch.hidden = batch.hidden;
  form.batch.local_experts = batch.local_experts;
  form.batch.segments.push_back(
      {form.rows.rows.data(), form.rows.row_stride_bytes, rows, form.rows.scale_offset_bytes, 0});
  form.batch.routing.row_begin.assign(static_cast<std::size_t>(rows) + 1, 0);
  form.index.expert_begin = index.expert_begin;
  form.index.rows = rows;
  form.index.entries = index.entries;
  for (std::int64_t e = 0; e < batch.local_experts; ++e)
    for (std::int64_t i = 0; i < form.rows.count[static_cast<std::size_t>(e)]; ++i) {
      form.index.row.push_back(e * most + i);
      form.index.entry.push_back(e * most + i);
    }
  return form;
}

}  // namespace

std::int64_t expert_scratch_bytes(const WorkspaceShapes& shapes, std::int64_t entries, std::int64_t hidden) {
  return round_up(shapes.workspace13_bytes, kCacheLineBytes) + entries * hidden * size_bytes(DType::f32);
}

/// Chunk by chunk: experts into entry rows, then weighted (and summed per row unless the strategy wants entries).
ExpertOutput ModularKernel::run_experts(const ExpertBatch& batch, const ExecutionContext& context,
                                        ForwardResult& result) const {
  try {
    const bool per_entry = prepare_finalize_->output_rows() == OutputRows::per_entry;
    const bool padded = experts_->activation_formats().in == ActivationFormat::batched_experts;
    const bool skip_weights = prepare_finalize_->config().router_weight_on_input;
    const auto hidden = batch.hidden;
    const auto out_rows = per_entry ? batch.routing.entries() : batch.rows();
    auto* out = reinterpret_cast<float*>(context.workspaces->output.get(out_rows * hidden * size_bytes(DType::f32)));
    const auto output = matrix_view(out, out_rows, hidden);

    for (const auto& chunk : cut_chunks(batch.routing, chunk_limits(*experts_, config_))) {
      const auto index = index_by_expert(batch, chunk.first_row, chunk.rows);
      const auto form = padded ? padded_form(batch, index) : PaddedForm{};
      const auto& stage_index = padded ? form.index : index;
      const auto entry_rows = padded ? form.index.rows : index.entries;
      const auto shapes = experts_->workspace_shapes(stage_index.rows, stage_index.entries);
      auto* workspace13 = context.workspaces->workspace13.get(expert_scratch_bytes(shapes, entry_rows, hidden));
      auto* workspace2 = context.workspaces->workspace2.get(shapes.workspace2_bytes);
      const auto behind = round_up(shapes.workspace13_bytes, kCacheLineBytes);
      const auto entries = matrix_view(reinterpret_cast<float*>(workspace13 + behind), entry_rows, hidden);
      experts_->apply(padded ? form.batch : batch, stage_index, *slots_, workspace13, workspace2, entries, context);

      const PhaseTimer timer(context, Phase::combine);
      if (per_entry) {
        weigh_entries(batch, index, entries, padded ? &form.index : nullptr,
                      output.slice(index.first_entry, index.entries), skip_weights, context);
      } else {
        const auto kind = padded ? WeightAndReduceKind::naive_batched : WeightAndReduceKind::contiguous;
        make_weight_and_reduce(kind, padded ? form.rows.max_rows : 0)
            ->apply(batch, index, entries, output.slice(chunk.first_row, chunk.rows), skip_weights);
      }
      ++result.chunks;
    }
    result.rows_received += batch.rows();
    result.entries_computed += batch.routing.entries();
    if (context.observer != nullptr)
      for (const auto logical : batch.routing.logical_expert) context.observer->expert_rows(logical, 1);
    return {output, ErrorCode::none};
  } catch (const Error& error) {
    // Travels to all ranks in place of rows; they throw together when they combine.
    context.log(LogLevel::error, error.what());
    return {{}, error.code()};
  } catch (const std::exception& error) {
    context.log(LogLevel::error, error.what());
    return {{}, ErrorCode::internal};
  }
}

void ModularKernel::weigh_entries(const ExpertBatch& batch, const ExpertIndex& index, ConstMatrixView entries,
                                  const ExpertIndex* padded, MatrixView out, bool skip_weights,
                                  const ExecutionContext& context) const {
  const auto from = entries.as<const float, Entry, Hidden>();
  const auto to = out.as<float, Entry, Hidden>();
  context.executor->run(
      index.entries,
      [&](std::int64_t i, int) {
        const auto n = static_cast<std::size_t>(i);
        const auto entry = index.entry[n];
        const auto* in = from.row(padded != nullptr ? padded->entry[n] : entry);
        auto* row = to.row(entry);
        const auto weight =
            skip_weights ? 1.0F : batch.routing.weight[static_cast<std::size_t>(index.first_entry + entry)];
        for (std::int64_t c = 0; c < to.cols; ++c) row[c] = in[c] * weight;
      },
      context.progress);
}

}  // namespace epmoe
