#include "prepare_finalize/bad_input.hpp"

#include <fmt/format.h>

#include "epmoe/prepare_finalize/exchange_plan.hpp"

namespace epmoe {

comm::Failure bad_input(BadField field, std::int64_t found, int rank) {
  return {ErrorCode::input, comm::MessageError::bad_input, rank, static_cast<std::int64_t>(field),
          static_cast<std::int32_t>(found)};
}

std::string bad_input_message(const comm::Failure& failure, const PrepareFinalizeConfig& config, int ranks,
                              std::string_view phase) {
  const auto say = [&](std::string_view field, auto found, auto wanted) {
    return fmt::format("rank {}: {}: found {}, wanted {} ({})", failure.rank, field, found, wanted, phase);
  };
  const auto found = failure.value;
  switch (static_cast<BadField>(failure.row)) {
    case BadField::x_dtype: return say("dtype of x", name(static_cast<DType>(found)), "f32, f16 or bf16");
    case BadField::x_hidden: return say("hidden of x", found, config.hidden);
    case BadField::x_rows: return say("rows of x", found, "as many as its step plan says");
    case BadField::x_memory: return say("data of x", "null, or a stride below its columns", "rows one after the other");
    case BadField::routing_rows: return say("rows of the routing", found, "as many as x has");
    case BadField::routing_top_k: return say("top_k of the routing", found, config.top_k);
    case BadField::too_many_tokens:
      return say("tokens", found, fmt::format("at most max_num_tokens_per_rank = {}", config.max_num_tokens_per_rank));
    case BadField::placement_experts: return say("experts of the placement", found, config.experts);
    case BadField::placement_ranks: return say("ranks of the placement", found, ranks);
    case BadField::refused_by_caller: return say("arguments of the call", "some that it refused", "valid ones");
    case BadField::output: return say("rows of the experts' output", found, "f32, one row each as the batch asks for");
    case BadField::y: return say("rows of y or of the routing", found, "f32 [tokens, hidden] of the call");
  }
  return failure.message(std::string(phase), config.experts);
}

comm::Failure check_input(const PrepareInput& input, const PrepareFinalizeConfig& config, int rank, int ranks) {
  if (input.failure == ErrorCode::input) return bad_input(BadField::refused_by_caller, 0, rank);
  if (input.failure != ErrorCode::none) return {input.failure, comm::MessageError::stage_failed, rank, 0, 0};
  const auto& x = input.x;
  if (x.dtype != DType::f32 && x.dtype != DType::f16 && x.dtype != DType::bf16)
    return bad_input(BadField::x_dtype, static_cast<std::int64_t>(x.dtype), rank);
  if (x.cols != config.hidden) return bad_input(BadField::x_hidden, x.cols, rank);
  if (x.rows != input.plan->tokens[static_cast<std::size_t>(rank)]) return bad_input(BadField::x_rows, x.rows, rank);
  if (x.rows > 0 && (x.data == nullptr || x.stride < x.cols)) return bad_input(BadField::x_memory, 0, rank);
  for (const auto rows : {input.routing.ids.rows, input.routing.weights.rows})
    if (rows != x.rows) return bad_input(BadField::routing_rows, rows, rank);
  for (const auto cols : {input.routing.ids.cols, input.routing.weights.cols})
    if (x.rows > 0 && cols != config.top_k) return bad_input(BadField::routing_top_k, cols, rank);
  if (config.max_num_tokens_per_rank > 0 && x.rows > config.max_num_tokens_per_rank)
    return bad_input(BadField::too_many_tokens, x.rows, rank);
  if (input.placement->experts() != config.experts)
    return bad_input(BadField::placement_experts, input.placement->experts(), rank);
  if (input.placement->ranks() != ranks) return bad_input(BadField::placement_ranks, input.placement->ranks(), rank);
  if (const auto bad = find_bad_id(input.routing, config.experts))
    return {ErrorCode::input, comm::MessageError::id_out_of_range, rank, bad->row, bad->value};
  return {};
}

}  // namespace epmoe
