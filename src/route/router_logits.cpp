#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "epmoe/core/aligned_memory.hpp"
#include "epmoe/core/dtype.hpp"
#include "epmoe/core/error.hpp"
#include "epmoe/route/router.hpp"

namespace epmoe {
namespace {

// A task widens its rows of x once and each weight row once, and shares it between its tokens.
constexpr std::int64_t kTokensPerTask = 8;
constexpr std::int64_t kExpertsPerTask = 32;
constexpr std::int64_t kLanes = 16;

/// Four vectors of four: the least common width, so that every ISA keeps all sums in registers.
typedef float Quad __attribute__((vector_size(16), aligned(4), may_alias));

/// Lane j sums the products j, j + 16, j + 32, …; then lanes 8 apart are added, then 4, 2, 1. Both rows must be padded
/// with zeros to a multiple of 16.
float dot(const float* a, const float* b, std::int64_t padded) {
  Quad s0 = {}, s1 = {}, s2 = {}, s3 = {};
  for (std::int64_t i = 0; i < padded; i += kLanes) {
    const auto* qa = reinterpret_cast<const Quad*>(a + i);
    const auto* qb = reinterpret_cast<const Quad*>(b + i);
    s0 += qa[0] * qb[0];
    s1 += qa[1] * qb[1];
    s2 += qa[2] * qb[2];
    s3 += qa[3] * qb[3];
  }
  const Quad sum = (s0 + s2) + (s1 + s3);
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

void check_shapes(ConstMatrixView x, ConstMatrixView weight, TypedView<float, Token, Expert> logits) {
  if (x.cols != weight.cols)
    throw InputError(
        fmt::format("router: x has {} columns, want hidden = {} of the router weight", x.cols, weight.cols));
  if (logits.rows != x.rows || logits.cols != weight.rows)
    throw InputError(
        fmt::format("router: logits are [{}, {}], want [{}, {}]", logits.rows, logits.cols, x.rows, weight.rows));
}

/// Rows of x and one row of the weight, widened and padded.
class Scratch {
 public:
  explicit Scratch(std::int64_t hidden)
      : padded_(round_up(hidden, kLanes)), values_(static_cast<std::size_t>((kTokensPerTask + 1) * padded_), 0.0F) {}
  [[nodiscard]] float* x(std::int64_t token) { return values_.data() + token * padded_; }
  [[nodiscard]] float* weight() { return values_.data() + kTokensPerTask * padded_; }
  [[nodiscard]] std::int64_t padded() const { return padded_; }

 private:
  std::int64_t padded_;
  std::vector<float> values_;
};

}  // namespace

void router_logits(ConstMatrixView x, ConstMatrixView weight, TypedView<float, Token, Expert> logits,
                   const ExecutionContext& context, bool logits_in_f32) {
  check_shapes(x, weight, logits);
  const bool round_x = weight.dtype == DType::bf16 && x.dtype != DType::bf16 && !logits_in_f32;
  const std::int64_t expert_blocks = ceil_div(weight.rows, kExpertsPerTask);
  const std::int64_t tasks = ceil_div(x.rows, kTokensPerTask) * expert_blocks;
  if (tasks == 0) return;
  std::vector<Scratch> scratches(static_cast<std::size_t>(context.executor->workers()), Scratch(x.cols));
  context.executor->run(
      tasks,
      [&](std::int64_t task, int worker) {
        Scratch& scratch = scratches[static_cast<std::size_t>(worker)];
        const std::int64_t first = task / expert_blocks * kTokensPerTask;
        const std::int64_t tokens = std::min(kTokensPerTask, x.rows - first);
        for (std::int64_t t = 0; t < tokens; ++t) {
          float* row = scratch.x(t);
          read_row(x, first + t, row);
          if (round_x) std::transform(row, row + x.cols, row, [](float v) { return to_float(to_bf16(v)); });
        }
        const std::int64_t expert = task % expert_blocks * kExpertsPerTask;
        const std::int64_t expert_end = std::min(expert + kExpertsPerTask, weight.rows);
        for (std::int64_t e = expert; e < expert_end; ++e) {
          read_row(weight, e, scratch.weight());
          for (std::int64_t t = 0; t < tokens; ++t)
            logits(first + t, e) = dot(scratch.x(t), scratch.weight(), scratch.padded());
        }
      },
      context.progress);
}

}  // namespace epmoe
