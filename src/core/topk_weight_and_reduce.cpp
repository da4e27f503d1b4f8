#include "epmoe/core/topk_weight_and_reduce.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/name_table.hpp"

namespace epmoe {
namespace {

constexpr NamedValue<WeightAndReduceKind> kKinds[] = {{WeightAndReduceKind::delegate, "delegate"},
                                                      {WeightAndReduceKind::no_op, "no_op"},
                                                      {WeightAndReduceKind::contiguous, "contiguous"},
                                                      {WeightAndReduceKind::naive_batched, "naive_batched"}};

void want_shape(const char* what, ConstMatrixView view, std::int64_t rows, std::int64_t cols) {
  if (view.dtype != DType::f32 || view.rows != rows || view.cols != cols)
    throw InternalError(
        fmt::format("weight and reduce: {} is {}, wanted [{}, {}] f32", what, describe(view), rows, cols));
}

/// Rows in order, entries of a row in ascending k; `location(entry)` is the row of `expert_output` it lies in.
template <class Location>
void reduce(const ExpertBatch& batch, const ExpertIndex& index, ConstMatrixView expert_output, MatrixView out,
            bool skip_weights, const Location& location) {
  const auto in = expert_output.as<const float, Entry, Hidden>();
  const auto sum = out.as<float, Row, Hidden>();
  const DispatchedRouting& routing = batch.routing;
  for (std::int64_t r = 0; r < index.rows; ++r) {
    float* row = sum.row(r);
    std::fill_n(row, sum.cols, 0.0F);
    const auto at = static_cast<std::size_t>(index.first_row + r);
    for (std::int64_t i = routing.row_begin[at]; i < routing.row_begin[at + 1]; ++i)
      add_weighted(row, in.row(location(i - index.first_entry)),
                   skip_weights ? 1.0F : routing.weight[static_cast<std::size_t>(i)], sum.cols);
  }
}

class Delegate final : public TopKWeightAndReduce {
 public:
  [[nodiscard]] WeightAndReduceKind kind() const override { return WeightAndReduceKind::delegate; }
  void apply(const ExpertBatch&, const ExpertIndex&, ConstMatrixView, MatrixView, bool) const override {
    throw InternalError("weight and reduce: `delegate` must be replaced by the prepare/finalize part before use");
  }
};

class NoOp final : public TopKWeightAndReduce {
 public:
  [[nodiscard]] WeightAndReduceKind kind() const override { return WeightAndReduceKind::no_op; }
  void apply(const ExpertBatch& batch, const ExpertIndex& index, ConstMatrixView expert_output, MatrixView out,
             bool /*skip_weights*/) const override {
    want_shape("the expert output", expert_output, index.rows, batch.hidden);
    want_shape("the result", out, index.rows, batch.hidden);
    const auto row_bytes = static_cast<std::size_t>(batch.hidden) * sizeof(float);
    for (std::int64_t r = 0; r < index.rows; ++r) {
      const auto at = static_cast<std::size_t>(index.first_row + r);
      if (batch.routing.row_begin[at] == batch.routing.row_begin[at + 1])
        std::memset(out.row(r), 0, row_bytes);
      else if (out.row(r) != expert_output.row(r))
        std::memcpy(out.row(r), expert_output.row(r), row_bytes);
    }
  }
};

class Contiguous final : public TopKWeightAndReduce {
 public:
  [[nodiscard]] WeightAndReduceKind kind() const override { return WeightAndReduceKind::contiguous; }
  void apply(const ExpertBatch& batch, const ExpertIndex& index, ConstMatrixView expert_output, MatrixView out,
             bool skip_weights) const override {
    want_shape("the expert output", expert_output, index.entries, batch.hidden);
    want_shape("the result", out, index.rows, batch.hidden);
    reduce(batch, index, expert_output, out, skip_weights, [](std::int64_t entry) { return entry; });
  }
};

class NaiveBatched final : public TopKWeightAndReduce {
 public:
  explicit NaiveBatched(std::int64_t max_rows) : max_rows_(max_rows) {}
  [[nodiscard]] WeightAndReduceKind kind() const override { return WeightAndReduceKind::naive_batched; }
  void apply(const ExpertBatch& batch, const ExpertIndex& index, ConstMatrixView expert_output, MatrixView out,
             bool skip_weights) const override {
    want_shape("the expert output", expert_output, batch.local_experts * max_rows_, batch.hidden);
    want_shape("the result", out, index.rows, batch.hidden);
    std::vector<std::int64_t> location(static_cast<std::size_t>(index.entries));
    for (std::int64_t e = 0; e < batch.local_experts; ++e) {
      const std::int64_t begin = index.expert_begin[static_cast<std::size_t>(e)];
      const std::int64_t count = index.expert_begin[static_cast<std::size_t>(e) + 1] - begin;
      if (count > max_rows_)
        throw InternalError(
            fmt::format("weight and reduce: local expert {} has {} rows, wanted at most {}", e, count, max_rows_));
      for (std::int64_t i = 0; i < count; ++i)
        location[static_cast<std::size_t>(index.entry[static_cast<std::size_t>(begin + i)])] = e * max_rows_ + i;
    }
    reduce(batch, index, expert_output, out, skip_weights,
           [&location](std::int64_t entry) { return location[static_cast<std::size_t>(entry)]; });
  }

 private:
  std::int64_t max_rows_;
};

}  // namespace

std::string_view name(WeightAndReduceKind kind) {
  return find_name(kKinds, kind);
}

AlignedBuffer TopKWeightAndReduce::apply(const ExpertBatch& batch, const ExpertIndex& index,
                                         ConstMatrixView expert_output, bool skip_weights) const {
  AlignedBuffer buffer(index.rows * batch.hidden * size_bytes(DType::f32));
  apply(batch, index, expert_output, matrix_view(buffer.as<float>(), index.rows, batch.hidden), skip_weights);
  return buffer;
}

std::unique_ptr<TopKWeightAndReduce> make_weight_and_reduce(WeightAndReduceKind kind, std::int64_t max_rows) {
  switch (kind) {
    case WeightAndReduceKind::delegate: return std::make_unique<Delegate>();
    case WeightAndReduceKind::no_op: return std::make_unique<NoOp>();
    case WeightAndReduceKind::contiguous: return std::make_unique<Contiguous>();
    case WeightAndReduceKind::naive_batched: return std::make_unique<NaiveBatched>(max_rows);
  }
  throw InternalError("weight and reduce: unknown kind");
}

void add_weighted(float* out, const float* in, float weight, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] += weight * in[i];
}

}  // namespace epmoe
