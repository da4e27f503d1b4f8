#pragma once
#include <algorithm>
#include <cstdint>

#include "epmoe/core/execution_context.hpp"

namespace epmoe {

/// Runs body(first, past) over [0, rows) in pieces large enough to be worth handing out.
template <class Body>
void for_row_blocks(const ExecutionContext& context, std::int64_t rows, Body&& body) {
  constexpr std::int64_t kRowsPerTask = 16;
  const auto tasks = (rows + kRowsPerTask - 1) / kRowsPerTask;
  if (tasks == 0) return;
  if (tasks == 1) return body(std::int64_t{0}, rows);
  context.executor->run(
      tasks,
      [&](std::int64_t task, int) {
        const auto first = task * kRowsPerTask;
        body(first, std::min(first + kRowsPerTask, rows));
      },
      context.progress);
}

}  // namespace epmoe
