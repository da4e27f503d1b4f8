#include <fmt/format.h>

#include <algorithm>

#include "epmoe/runtime/modular_kernel.hpp"
#include "runtime/chunks.hpp"
#include "runtime/expert_stage.hpp"

/// What ModularKernel checks when it is made, and how much memory it will need.
namespace epmoe {

void KernelConfig::validate() const {
  if (chunk_rows < 1) throw ConfigError(fmt::format("chunk_rows is {}, wanted at least 1", chunk_rows));
  if (chunk_budget_bytes < 1)
    throw ConfigError(fmt::format("chunk_budget_bytes is {}, wanted at least 1", chunk_budget_bytes));
  if (pipeline < 1) throw ConfigError(fmt::format("pipeline is {}, wanted at least 1", pipeline));
  if (shared_token_threshold < 0)
    throw ConfigError(fmt::format("shared_token_threshold is {}, wanted at least 0", shared_token_threshold));
  if (global_num_experts != -1 && global_num_experts < 1)
    throw ConfigError(fmt::format("global_num_experts is {}, wanted -1 or at least 1", global_num_experts));
}

ModularKernel::ModularKernel(std::shared_ptr<comm::ExpertGroup> group,
                             std::shared_ptr<PrepareFinalize> prepare_finalize, std::shared_ptr<const Experts> experts,
                             std::shared_ptr<const ExpertSlots> slots, std::shared_ptr<const Placement> placement,
                             const KernelConfig& config, std::shared_ptr<const SharedExperts> shared)
    : group_(std::move(group)),
      prepare_finalize_(std::move(prepare_finalize)),
      experts_(std::move(experts)),
      slots_(std::move(slots)),
      placement_(std::move(placement)),
      config_(config),
      shared_(std::move(shared)) {
  config_.validate();
  const auto& shape = experts_->config().shape;
  const auto& wire = prepare_finalize_->config();
  if (prepare_finalize_->activation_format() != ActivationFormat::standard)
    throw ConfigError(fmt::format("strategy {} gives {} rows, wanted standard: the adaptor makes the other form",
                                  prepare_finalize_->name(), name(prepare_finalize_->activation_format())));
  const auto formats = experts_->activation_formats();
  if (formats.in != formats.out)
    throw ConfigError(fmt::format("experts {} take {} rows and give {}, wanted the same form", experts_->name(),
                                  name(formats.in), name(formats.out)));
  if (shape.hidden != wire.hidden)
    throw ConfigError(fmt::format("experts have hidden {}, the strategy {}", shape.hidden, wire.hidden));
  if (placement_->ranks() != group_->size())
    throw ConfigError(fmt::format("placement is for {} ranks, the group has {}", placement_->ranks(), group_->size()));
  const auto owned = static_cast<std::int64_t>(placement_->local_slots(group_->rank()).size());
  if (slots_->slots() != owned)
    throw ConfigError(
        fmt::format("rank {}: {} expert slots, the placement gives it {}", group_->rank(), slots_->slots(), owned));
  if (!(slots_->layout() == experts_->packed_layout()))
    throw ConfigError(fmt::format("experts {} want weights packed otherwise than they are", experts_->name()));
  if (config_.global_num_experts != -1 && config_.global_num_experts != placement_->experts())
    throw ConfigError(fmt::format("global_num_experts is {}, the placement has {}", config_.global_num_experts,
                                  placement_->experts()));
  if (config_.pipeline > 1 && group_->config().max_in_flight < 3)
    throw ConfigError(fmt::format("pipeline {} needs max_in_flight of at least 3, found {}", config_.pipeline,
                                  group_->config().max_in_flight));
  prepare_finalize_->post_init_setup(experts_->traits());
}

std::int64_t ModularKernel::global_num_experts() const {
  return config_.global_num_experts == -1 ? placement_->experts() : config_.global_num_experts;
}

ModularKernel::ChunkInfo ModularKernel::chunk_info(std::int64_t rows, std::int64_t entries) const {
  const auto limits = chunk_limits(*experts_, config_);
  ChunkInfo info;
  info.rows_per_chunk = std::min(rows, limits.rows);
  // One row is never cut, so a chunk may hold top_k entries where the budget says fewer.
  info.entries_per_chunk = std::min(entries, std::max(limits.entries, experts_->config().shape.top_k));
  if (rows > 0)
    info.chunks = std::max<std::int64_t>({1, ceil_div(rows, info.rows_per_chunk),
                                          info.entries_per_chunk > 0 ? ceil_div(entries, info.entries_per_chunk) : 1});
  info.workspace = experts_->workspace_shapes(info.rows_per_chunk, info.entries_per_chunk);
  return info;
}

void ModularKernel::reserve(WorkspaceSet& workspaces, std::int64_t max_tokens_per_rank) const {
  const auto& shape = experts_->config().shape;
  const auto row_bytes = shape.hidden * size_bytes(DType::f32);
  const auto rows = max_tokens_per_rank * group_->size();
  const auto entries = rows * shape.top_k;
  const auto info = chunk_info(rows, entries);
  workspaces.workspace13.get(expert_scratch_bytes(info.workspace, info.entries_per_chunk, shape.hidden));
  workspaces.workspace2.get(info.workspace.workspace2_bytes);
  const bool per_entry = prepare_finalize_->output_rows() == OutputRows::per_entry;
  workspaces.output.get((per_entry ? entries : rows) * row_bytes);
  workspaces.result.get(2 * max_tokens_per_rank * row_bytes);
  if (shared_ != nullptr) {
    const auto limits = chunk_limits(shared_->experts(), KernelConfig{});
    const auto shared_rows = std::min({max_tokens_per_rank, limits.rows, limits.entries});
    const auto shapes = shared_->experts().workspace_shapes(shared_rows, shared_rows);
    workspaces.shared.get(round_up(shapes.workspace13_bytes, kCacheLineBytes) + shapes.workspace2_bytes);
  }
  workspaces.lock();
}

}  // namespace epmoe
