#pragma once
#include <memory>

#include "epmoe/experts/experts.hpp"

namespace epmoe {

/// Any back end as one that takes and gives BatchedExperts rows, [local experts, max rows, hidden], padding never
/// read. Results are bitwise those of the standard form. Useful to researchers whose kernel wants padded input.
std::unique_ptr<Experts> make_batched_experts(std::unique_ptr<Experts> experts);

}  // namespace epmoe
