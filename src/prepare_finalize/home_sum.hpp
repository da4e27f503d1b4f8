#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "epmoe/core/execution_context.hpp"
#include "epmoe/core/tensor_view.hpp"
#include "epmoe/prepare_finalize/exchange_plan.hpp"
#include "epmoe/quantize/row_format.hpp"

namespace epmoe {

/// Writes every row of y: the sum of what came home for its token, in a fixed order whatever order it arrived in:
/// rank by rank, or by ascending k over all ranks if one row came home per entry. Tokens without experts become zero.
/// `home_row(rank, i)` is the i-th combine row of a rank.
void sum_home_rows(const ExchangePlan& plan, const CombineRowFormat& format, bool per_entry, std::int64_t top_k,
                   const std::function<const std::byte*(int, std::int64_t)>& home_row,
                   TypedView<float, Token, Hidden> y, const ExecutionContext& context);

}  // namespace epmoe
