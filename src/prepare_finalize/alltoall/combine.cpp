#include <algorithm>

#include "prepare_finalize/alltoall/alltoall.hpp"

namespace epmoe {

/// An owner returns every row it was sent.
std::vector<std::int64_t> AllToAll::home_begin(const Call& call, int owner, std::int64_t capacity) const {
  const auto rows = call.plan.rows_to(owner);
  std::vector<std::int64_t> begin{0};
  std::int64_t row = 0;
  do {
    row = std::min(row + capacity, rows);
    begin.push_back(combine_row(call, owner, row));
  } while (row < rows);
  return begin;
}

}  // namespace epmoe
