#include "prepare_finalize/round_trip.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "epmoe/comm/communicator.hpp"
#include "epmoe/core/random.hpp"
#include "epmoe/core/topk_weight_and_reduce.hpp"

namespace epmoe::test {
namespace {

float expert_scale(const Case& c, std::int32_t logical) {
  return c.identity ? 1.0F : static_cast<float>(logical + 1) / 8.0F;
}

}  // namespace

Input::Input(const Case& c, OwnedRouting r) : routing(std::move(r)) {
  const auto rank = world_rank();
  const auto tokens = c.tokens[static_cast<std::size_t>(rank)];
  const auto hidden = c.config.hidden;
  const auto stride = c.stride == 0 ? hidden : c.stride;
  memory.resize(static_cast<std::size_t>(tokens * stride * size_bytes(c.x_type)));
  MatrixView view{memory.data(), c.x_type, tokens, hidden, stride, MemorySpace::host};
  std::vector<float> row(static_cast<std::size_t>(hidden));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t h = 0; h < hidden; ++h)
      row[static_cast<std::size_t>(h)] =
          random_normal(c.seed, static_cast<std::uint64_t>(t), static_cast<std::uint64_t>(h));
    row[0] = static_cast<float>(rank + 1);
    row[static_cast<std::size_t>(hidden - 1)] += static_cast<float>(t % 251);
    write_row(view, t, row.data());
  }
  x = view;
  plan.tokens = c.tokens;
  first_token = plan.first_token(rank);
}

PrepareInput Input::prepare(const Case& c) const {
  PrepareInput input;
  input.x = x;
  input.routing = routing.view();
  input.placement = c.placement;
  input.plan = &plan;
  input.global_first_token = first_token;
  input.layer = 3;
  return input;
}

OwnedRouting random_routing(const Case& c) {
  StepPlan plan;
  plan.tokens = c.tokens;
  const auto first = plan.first_token(world_rank());
  const auto tokens = c.tokens[static_cast<std::size_t>(world_rank())];
  OwnedRouting routing(tokens, c.config.top_k);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t k = 0; k < c.config.top_k; ++k) {
      const auto bits =
          random_bits(c.seed, static_cast<std::uint64_t>(first + t), static_cast<std::uint64_t>(1000 + k));
      const bool none = bits % 11 == 0;
      routing.ids()(t, k) =
          none ? kNoExpert : static_cast<std::int32_t>((bits >> 8) % static_cast<std::uint64_t>(c.config.experts));
      routing.weights()(t, k) =
          none ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(bits % 997 + 1) / 997.0F;
    }
  return routing;
}

HandExperts hand_experts(const ExpertBatch& batch, const Case& c, Fault fault) {
  const auto& routing = batch.routing;
  const auto hidden = batch.hidden;
  const auto n = static_cast<std::size_t>(hidden);
  const bool per_entry = c.config.reproducible;
  const auto rows = per_entry ? routing.entries() : batch.rows();
  std::vector<std::int32_t> source;
  for (const auto& segment : batch.segments)
    source.insert(source.end(), static_cast<std::size_t>(segment.count), segment.source);
  HandExperts result;
  result.values.assign(static_cast<std::size_t>(rows) * n, 0.0F);
  const RowLocator locator(batch);
  std::vector<float> row(n), product(n);
  for (std::int64_t r = 0; r < batch.rows(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    decode_hidden(batch.type, locator.row(r), batch.type == DispatchType::int8 ? locator.scale(r) : 1.0F, hidden,
                  row.data());
    if (fault == Fault::drop_rows_of_rank_0 && source[at] == 0) continue;
    for (auto e = routing.row_begin[at]; e < routing.row_begin[at + 1]; ++e) {
      const auto entry = static_cast<std::size_t>(e);
      auto logical = routing.logical_expert[entry];
      if (fault == Fault::swap_two_experts && logical < 2) logical = 1 - logical;
      auto weight = routing.weight[entry];
      if (fault == Fault::shift_a_weight) weight = routing.weight[(entry + 1) % routing.weight.size()];
      for (std::size_t h = 0; h < n; ++h) product[h] = row[h] * expert_scale(c, logical);
      auto* out = result.values.data() + static_cast<std::size_t>(per_entry ? e : r) * n;
      if (per_entry) {
        for (std::size_t h = 0; h < n; ++h) out[h] = product[h] * weight;
      } else {
        add_weighted(out, product.data(), weight, hidden);
      }
    }
  }
  result.output.rows = const_matrix_view(result.values.data(), rows, hidden);
  return result;
}

std::vector<float> finish_call(PrepareFinalize& strategy, Prepared part, const Input& input, const Case& c,
                               const ExecutionContext& context, Fault fault, int* parts) {
  std::vector<float> y(static_cast<std::size_t>(input.x.rows * c.config.hidden),
                       std::numeric_limits<float>::quiet_NaN());
  auto receipt = std::move(part.receipt);
  auto experts = hand_experts(part.batch, c, fault);
  int count = 1;
  for (; part.more; ++count) {
    part = strategy.next_part(receipt, experts.output, context);
    experts = hand_experts(part.batch, c, fault);
  }
  if (parts != nullptr) *parts = count;
  strategy.finalize(std::move(receipt), input.routing.view(), experts.output,
                    matrix_view(y.data(), input.x.rows, c.config.hidden), context);
  return y;
}

std::vector<float> round_trip(PrepareFinalize& strategy, const Input& input, const Case& c,
                              const ExecutionContext& context, Fault fault, int* parts) {
  return finish_call(strategy, strategy.prepare(input.prepare(c), context), input, c, context, fault, parts);
}

std::vector<float> oracle(const Input& input, const Case& c) {
  const auto hidden = c.config.hidden;
  const auto n = static_cast<std::size_t>(hidden);
  const DispatchRowFormat dispatch(c.config.dispatch, hidden, c.config.top_k);
  const CombineRowFormat combine(c.config.combine, hidden);
  AlignedBuffer wire(std::max(dispatch.row_bytes(), combine.row_bytes()));
  std::vector<float> y(static_cast<std::size_t>(input.x.rows) * n, 0.0F), row(n), product(n), partial(n);
  const auto routing = input.routing.view();
  for (std::int64_t t = 0; t < input.x.rows; ++t) {
    auto* out = y.data() + static_cast<std::size_t>(t) * n;
    const auto add_home = [&](const std::vector<float>& values) {
      combine.encode(values.data(), wire.data());
      combine.decode_add(wire.data(), out);
    };
    const auto physical = [&](std::int64_t k) {
      return c.placement->physical(routing.ids(t, k), static_cast<std::uint64_t>(input.first_token + t));
    };
    const auto expert_out = [&](std::int64_t k) {
      dispatch.encode(input.x, t, c.config.router_weight_on_input ? routing.weights(t, k) : 1.0F, wire.data());
      dispatch.decode(wire.data(), row.data());
      for (std::size_t h = 0; h < n; ++h) product[h] = row[h] * expert_scale(c, routing.ids(t, k));
      return c.config.router_weight_on_input ? 1.0F : routing.weights(t, k);
    };
    if (c.config.reproducible) {
      for (std::int64_t k = 0; k < c.config.top_k; ++k) {
        if (routing.ids(t, k) == kNoExpert) continue;
        const auto weight = expert_out(k);
        for (std::size_t h = 0; h < n; ++h) partial[h] = product[h] * weight;
        add_home(partial);
      }
      continue;
    }
    for (int owner = 0; owner < c.placement->ranks(); ++owner) {
      bool any = false;
      std::fill(partial.begin(), partial.end(), 0.0F);
      for (std::int64_t k = 0; k < c.config.top_k; ++k) {
        if (routing.ids(t, k) == kNoExpert || c.placement->slot(physical(k)).rank != owner) continue;
        any = true;
        const auto weight = expert_out(k);
        add_weighted(partial.data(), product.data(), weight, hidden);
      }
      if (any) add_home(partial);
    }
  }
  return y;
}

std::int64_t differing(const std::vector<float>& found, const std::vector<float>& wanted) {
  if (found.size() != wanted.size()) return static_cast<std::int64_t>(std::max(found.size(), wanted.size()));
  std::int64_t count = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(found[i]) && std::isnan(wanted[i])) continue;
    if (std::bit_cast<std::uint32_t>(found[i]) != std::bit_cast<std::uint32_t>(wanted[i])) ++count;
  }
  return count;
}

std::int64_t over_ranks(std::int64_t mine, const ExecutionContext& context) {
  const auto all = comm::Communicator::world();
  std::int64_t sum = 0;
  for (const auto& bytes : all.all_gather(std::as_bytes(std::span(&mine, 1)), context, "a sum over ranks")) {
    std::int64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    sum += value;
  }
  return sum;
}

std::vector<std::int64_t> per_rank(std::vector<std::int64_t> tokens) {
  tokens.resize(static_cast<std::size_t>(world_size()), tokens.empty() ? 0 : tokens.back());
  return tokens;
}

std::vector<std::string> fitting_strategies() {
  std::vector<std::string> names{"alltoall", "allgather"};
  if (world_size() == 1) names.emplace_back("local");
  return names;
}

}  // namespace epmoe::test
