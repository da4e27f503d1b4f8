#pragma once
#include "epmoe/core/activation_format.hpp"
#include "epmoe/core/topk_weight_and_reduce.hpp"

namespace epmoe {

/// What prepare/finalize may know of the experts part it is joined with.
struct ExpertsTraits {
  ActivationFormats formats;
  WeightAndReduceKind leaves_to_finalize = WeightAndReduceKind::contiguous;
  std::int64_t local_experts = 0;
};

}  // namespace epmoe
