#include "bench_layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "epmoe/core/error.hpp"
#include "epmoe/quantize/row_format.hpp"
#include "epmoe/route/scripted_router.hpp"

namespace epmoe::cli {

BenchWeights::BenchWeights(const MoeConfig& shape, std::uint64_t seed, int workers) {
  for (int w = 0; w < workers; ++w) {
    layers_.push_back(std::make_unique<RandomLayer>(shape, DType::bf16, seed, 0));
    sources_.push_back(layers_.back()->source());
  }
}

BenchLayers make_bench_layers(const PackedLayout& layout, std::int64_t experts, BenchWeights& weights,
                              std::int64_t wanted_bytes, std::int64_t most_bytes, const ExecutionContext& context) {
  const std::int64_t layer_bytes = experts * layout.slot_bytes();
  if (layer_bytes > most_bytes)
    throw ConfigError(fmt::format("bench: one packed layer takes {} MiB, {} MiB of memory are free for weights",
                                  layer_bytes >> 20U, most_bytes >> 20U));
  const std::int64_t wanted = ceil_div(wanted_bytes + 1, layer_bytes);
  const std::int64_t copies = std::min(wanted, most_bytes / layer_bytes);
  BenchLayers layers;
  layers.layout = layout;
  if (copies < wanted)
    layers.note = fmt::format("weights of {} MiB instead of {} MiB, for want of memory: caches may hold a part of them",
                              (copies * layer_bytes) >> 20U, (wanted * layer_bytes) >> 20U);
  for (std::int64_t c = 0; c < copies; ++c) {
    ExpertSlots& slots = layers.copies.emplace_back(layout, experts);
    context.executor->run(
        experts,
        [&](std::int64_t e, int worker) {
          if (c == 0)
            slots.pack(e, weights.expert(static_cast<std::int32_t>(e), worker));
          else
            slots.import_slot(e, layers.copies.front().export_slot(e));
        },
        nullptr);
  }
  return layers;
}

namespace {

/// `first_expert` is what the script's expert 0 stands for.
BenchBatch draw_batch(const MoeConfig& shape, const Routing& routing, std::int64_t first_expert) {
  BenchBatch made;
  ExpertBatch& batch = made.batch;
  batch.hidden = shape.hidden;
  batch.local_experts = shape.experts;
  std::set<std::int32_t> hit;
  for (std::int64_t t = 0; t < routing.ids.rows; ++t) {
    for (std::int64_t k = 0; k < shape.top_k; ++k) {
      const auto e = static_cast<std::int32_t>((routing.ids(t, k) + first_expert) % shape.experts);
      hit.insert(e);
      batch.routing.local_slot.push_back(e);
      batch.routing.physical_expert.push_back(e);
      batch.routing.logical_expert.push_back(e);
      batch.routing.k.push_back(static_cast<std::int32_t>(k));
      batch.routing.shard.push_back(0);
      batch.routing.weight.push_back(routing.weights(t, k));
    }
    batch.routing.row_begin.push_back(static_cast<std::int64_t>(batch.routing.local_slot.size()));
  }
  made.experts_hit = static_cast<std::int64_t>(hit.size());
  return made;
}

}  // namespace

BenchBatches make_bench_batches(const MoeConfig& shape, DispatchType type, std::int64_t tokens, const std::string& skew,
                                std::uint64_t seed, std::int64_t sets) {
  const Script script = skew == "zipf" ? Script::zipf : Script::uniform;
  const auto placement = Placement::linear(shape.experts, 1);
  const DispatchRowFormat format(type, shape.hidden, shape.top_k);
  BenchBatches made;
  made.rows = AlignedBuffer(tokens * format.row_bytes());
  std::vector<float> x(static_cast<std::size_t>(tokens * shape.hidden));
  const MatrixView view = matrix_view(x.data(), tokens, shape.hidden);
  random_hidden_states(seed, 0, view);
  for (std::int64_t t = 0; t < tokens; ++t) format.encode(view, t, 1.0F, made.rows.data() + t * format.row_bytes());
  for (std::int64_t s = 0; s < sets; ++s) {
    const auto routing = scripted_routing(script, tokens, shape.top_k, *placement, seed, s * tokens);
    BenchBatch& set = made.sets.emplace_back(draw_batch(shape, routing.view(), s * shape.experts / sets));
    set.batch.type = type;
    set.batch.segments = {{made.rows.data(), format.row_bytes(), tokens, format.scale_offset_bytes(), 0}};
  }
  return made;
}

}  // namespace epmoe::cli
