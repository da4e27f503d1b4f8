#include <algorithm>

#include "prepare_finalize/allgather/allgather.hpp"

namespace epmoe {

/// A message carries consecutive tokens; an owner returns those of them that have experts there.
std::vector<std::int64_t> AllGather::home_begin(const Call& call, int owner, std::int64_t capacity) const {
  const auto first = call.plan.row_token.begin() + call.plan.rank_begin[static_cast<std::size_t>(owner)];
  const auto past = first + call.plan.rows_to(owner);
  std::vector<std::int64_t> begin{0};
  std::int64_t token = 0;
  do {
    token = std::min(token + capacity, call.tokens);
    begin.push_back(combine_row(call, owner, std::lower_bound(first, past, token) - first));
  } while (token < call.tokens);
  return begin;
}

}  // namespace epmoe
