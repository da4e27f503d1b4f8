#include "epmoe/experts/reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "epmoe/core/error.hpp"
#include "epmoe/quantize/row_format.hpp"
#include "experts/reference_ffn.hpp"

namespace epmoe {
namespace {

constexpr std::int64_t kRowsAtOnce = 32;  // keeps the f64 rows of one expert small

/// One token's row as the experts see it: `factor` applied, rounded by the wire, then by the back end.
class InputRows {
 public:
  InputRows(const ReferenceConfig& config, const ConstMatrixView& x, bool wire)
      : config_(config),
        x_(x),
        wire_(wire && config.quantise_alike),
        format_(config.dispatch, x.cols, std::max<std::int64_t>(config.shape.top_k, 1)),
        bytes_(static_cast<std::size_t>(format_.row_bytes())),
        row_(static_cast<std::size_t>(x.cols)) {}

  void read(std::int64_t token, float factor, double* out) {
    if (wire_) {
      format_.encode(x_, token, factor, bytes_.data());
      format_.decode(bytes_.data(), row_.data());
    } else {
      read_row(x_, token, row_.data());
    }
    // int8 rows from the wire are what the GEMM multiplies; they are not quantised again.
    const bool passed_through =
        wire_ && config_.dispatch == DispatchType::int8 && config_.quant.compute == ComputeType::int8;
    if (config_.quantise_alike && !passed_through)
      reference::round_activations(config_.quant.compute, config_.quant.a1, x_.cols, row_.data());
    const double f = wire_ ? 1.0 : static_cast<double>(factor);
    for (std::int64_t c = 0; c < x_.cols; ++c) out[c] = static_cast<double>(row_[static_cast<std::size_t>(c)]) * f;
  }

 private:
  const ReferenceConfig& config_;
  const ConstMatrixView& x_;
  bool wire_;
  DispatchRowFormat format_;
  std::vector<std::byte> bytes_;
  std::vector<float> row_;
};

struct Use {
  std::int64_t token;
  float weight;
};

}  // namespace

std::vector<double> reference_moe(const ReferenceConfig& config, ConstMatrixView x, const Routing& routing,
                                  const std::function<ExpertWeights(std::int32_t)>& expert) {
  if (routing.tokens() != x.rows)
    throw InputError(fmt::format("reference: routing of {} tokens, x has {}", routing.tokens(), x.rows));
  std::map<std::int32_t, std::vector<Use>> uses;
  for (std::int64_t t = 0; t < x.rows; ++t)
    for (std::int64_t k = 0; k < routing.top_k(); ++k)
      if (routing.ids(t, k) != kNoExpert) uses[routing.ids(t, k)].push_back({t, routing.weights(t, k)});

  const std::int64_t hidden = x.cols;
  const QuantConfig* quant = config.quantise_alike ? &config.quant : nullptr;
  const bool on_input = config.shape.router_weight_on_input;
  InputRows input(config, x, true);
  std::vector<double> y(static_cast<std::size_t>(x.rows * hidden), 0.0);
  std::vector<double> in(static_cast<std::size_t>(kRowsAtOnce * hidden)), out(in.size());
  for (const auto& [id, tokens] : uses) {
    const reference::Expert weights = reference::round_expert(expert(id), quant);
    if (weights.hidden != hidden)
      throw InputError(fmt::format("reference: expert {} has hidden {}, x has {}", id, weights.hidden, hidden));
    for (std::size_t begin = 0; begin < tokens.size(); begin += kRowsAtOnce) {
      const auto rows = static_cast<std::int64_t>(std::min<std::size_t>(kRowsAtOnce, tokens.size() - begin));
      for (std::int64_t r = 0; r < rows; ++r) {
        const Use& use = tokens[begin + static_cast<std::size_t>(r)];
        input.read(use.token, on_input ? use.weight : 1.0F, in.data() + r * hidden);
      }
      reference::ffn(weights, config.shape.activation, quant, rows, in.data(), out.data());
      for (std::int64_t r = 0; r < rows; ++r) {
        const Use& use = tokens[begin + static_cast<std::size_t>(r)];
        const double weight = on_input ? 1.0 : static_cast<double>(use.weight);
        for (std::int64_t c = 0; c < hidden; ++c)
          y[static_cast<std::size_t>(use.token * hidden + c)] += weight * out[static_cast<std::size_t>(r * hidden + c)];
      }
    }
  }
  return y;
}

std::vector<double> reference_shared(const ReferenceConfig& config, ConstMatrixView x, const ExpertWeights& weights,
                                     const ConstMatrixView* gate) {
  const QuantConfig* quant = config.quantise_alike ? &config.quant : nullptr;
  const reference::Expert expert = reference::round_expert(weights, quant);
  if (expert.hidden != x.cols)
    throw InputError(fmt::format("reference: the shared expert has hidden {}, x has {}", expert.hidden, x.cols));
  InputRows input(config, x, false);
  const std::int64_t hidden = x.cols;
  std::vector<double> in(static_cast<std::size_t>(kRowsAtOnce * hidden));
  std::vector<double> y(static_cast<std::size_t>(x.rows * hidden));
  for (std::int64_t begin = 0; begin < x.rows; begin += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, x.rows - begin);
    for (std::int64_t r = 0; r < rows; ++r) input.read(begin + r, 1.0F, in.data() + r * hidden);
    reference::ffn(expert, config.shape.activation, quant, rows, in.data(), y.data() + begin * hidden);
  }
  if (gate == nullptr) return y;

  std::vector<float> row(static_cast<std::size_t>(hidden)), direction(row.size());
  read_row(*gate, 0, direction.data());
  for (std::int64_t t = 0; t < x.rows; ++t) {
    read_row(x, t, row.data());
    double logit = 0.0;
    for (std::size_t c = 0; c < row.size(); ++c)
      logit += static_cast<double>(row[c]) * static_cast<double>(direction[c]);
    const double factor = 1.0 / (1.0 + std::exp(-logit));
    for (std::int64_t c = 0; c < hidden; ++c) y[static_cast<std::size_t>(t * hidden + c)] *= factor;
  }
  return y;
}

RelativeError relative_error(ConstMatrixView found, const std::vector<double>& wanted) {
  if (static_cast<std::int64_t>(wanted.size()) != found.rows * found.cols)
    throw InputError(fmt::format("relative error: found {}, wanted {} values", describe(found), wanted.size()));
  const auto relative = [](double error, double norm) {
    if (error == 0.0) return 0.0;
    const double ratio = std::sqrt(error / norm);
    return std::isnan(ratio) ? std::numeric_limits<double>::infinity()
                             : ratio;  // a stray NaN is never within tolerance
  };
  RelativeError result;
  double total_error = 0.0, total_norm = 0.0;
  std::vector<float> row(static_cast<std::size_t>(found.cols));
  for (std::int64_t r = 0; r < found.rows; ++r) {
    read_row(found, r, row.data());
    double error = 0.0, norm = 0.0;
    for (std::int64_t c = 0; c < found.cols; ++c) {
      const double is = static_cast<double>(row[static_cast<std::size_t>(c)]);
      const double want = wanted[static_cast<std::size_t>(r * found.cols + c)];
      if (is == want || (std::isnan(is) && std::isnan(want))) {
        if (std::isfinite(want)) norm += want * want;
        continue;  // Inf and NaN where they are wanted
      }
      error += (is - want) * (is - want);
      norm += want * want;
    }
    total_error += error;
    total_norm += norm;
    const double worst = relative(error, norm);
    if (result.worst_row_index < 0 || worst > result.worst_row) {
      result.worst_row = worst;
      result.worst_row_index = r;
    }
  }
  result.total = relative(total_error, total_norm);
  return result;
}

}  // namespace epmoe
