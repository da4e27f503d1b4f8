#include "experts/reference_ffn.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "epmoe/core/error.hpp"
#include "epmoe/quantize/int8.hpp"
#include "epmoe/quantize/quantized_matrix.hpp"

namespace epmoe::reference {
namespace {

std::vector<float> round_matrix(const ConstMatrixView& source, const QuantConfig* quant) {
  std::vector<float> values(static_cast<std::size_t>(source.rows * source.cols));
  if (quant != nullptr && quant->weights.narrow()) {
    const QuantizedMatrix q = quantize_matrix(quant->weights, source);
    for (std::int64_t r = 0; r < source.rows; ++r) dequantize_row(q, r, values.data() + r * source.cols);
    return values;
  }
  std::vector<std::int8_t> q(static_cast<std::size_t>(source.cols));
  for (std::int64_t r = 0; r < source.rows; ++r) {
    float* row = values.data() + r * source.cols;
    read_row(source, r, row);
    if (quant == nullptr || quant->compute == ComputeType::f32) continue;
    if (quant->compute == ComputeType::bf16) {
      for (std::int64_t c = 0; c < source.cols; ++c) row[c] = to_float(to_bf16(row[c]));
    } else {
      const float scale = quantize_int8_channel(row, source.cols, q.data());
      for (std::int64_t c = 0; c < source.cols; ++c)
        row[c] = static_cast<float>(q[static_cast<std::size_t>(c)]) * scale;
    }
  }
  return values;
}

std::vector<float> read_bias(const ConstMatrixView& bias) {
  if (bias.rows == 0) return {};
  std::vector<float> values(static_cast<std::size_t>(bias.cols));
  read_row(bias, 0, values.data());
  return values;
}

double dot(const double* a, const double* b, std::int64_t n) {
  double sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/// out[rows, n] = x[rows, k] w[n, k]^T + bias.
void gemm(const std::vector<float>& w, const std::vector<float>& bias, std::int64_t n, std::int64_t k,
          std::int64_t rows, const double* x, double* out) {
  std::vector<double> row(static_cast<std::size_t>(k));
  for (std::int64_t j = 0; j < n; ++j) {
    std::copy_n(w.data() + j * k, k, row.data());
    const double b = bias.empty() ? 0.0 : static_cast<double>(bias[static_cast<std::size_t>(j)]);
    for (std::int64_t r = 0; r < rows; ++r) out[r * n + j] = dot(x + r * k, row.data(), k) + b;
  }
}

double at_most_7(double x) {
  return x > 7.0 ? 7.0 : x;  // NaN stays
}
double within_7(double x) {
  return x < -7.0 ? -7.0 : at_most_7(x);
}

double activate(Activation activation, double gate, double up) {
  switch (activation) {
    case Activation::silu: return gate / (1.0 + std::exp(-gate)) * up;
    case Activation::gelu: return 0.5 * gate * std::erfc(-gate / std::sqrt(2.0)) * up;
    case Activation::swiglu_oai: {
      const double g = at_most_7(gate), u = within_7(up);
      return (u + 1.0) * (g / (1.0 + std::exp(-1.702 * g)));
    }
    case Activation::gelu_tanh: {
      const double u = std::sqrt(2.0 / std::acos(-1.0)) * (gate + 0.044715 * gate * gate * gate);
      return 0.5 * gate * (1.0 + std::tanh(u)) * up;
    }
    case Activation::relu2: return (gate < 0.0 ? 0.0 : gate * gate) * up;
    case Activation::silu_clamped: {
      const double g = at_most_7(gate);
      return g / (1.0 + std::exp(-g)) * within_7(up);
    }
    case Activation::silu_no_mul: return activate(Activation::silu, gate, 1.0);
    case Activation::gelu_no_mul: return activate(Activation::gelu, gate, 1.0);
    case Activation::gelu_tanh_no_mul: return activate(Activation::gelu_tanh, gate, 1.0);
    case Activation::relu2_no_mul: return activate(Activation::relu2, gate, 1.0);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

Expert round_expert(const ExpertWeights& weights, const QuantConfig* quant) {
  Expert expert;
  expert.hidden = weights.down.rows;
  expert.intermediate = weights.gate.rows;
  expert.gate = round_matrix(weights.gate, quant);
  expert.up = round_matrix(weights.up, quant);
  expert.down = round_matrix(weights.down, quant);
  expert.gate_bias = read_bias(weights.gate_bias);
  expert.up_bias = read_bias(weights.up_bias);
  expert.down_bias = read_bias(weights.down_bias);
  return expert;
}

void round_activations(ComputeType compute, const ScaleConfig& scale, std::int64_t n, float* values) {
  if (compute == ComputeType::f32) return;
  if (compute == ComputeType::bf16) {
    for (std::int64_t i = 0; i < n; ++i) values[i] = to_float(to_bf16(values[i]));
    return;
  }
  std::vector<std::int8_t> q(static_cast<std::size_t>(n));
  float s;
  if (scale.is_static) {
    bool finite = true;
    s = scale.static_scale.value();
    quantize_int8_static(values, n, s, q.data(), &finite);
    if (!finite) s = std::numeric_limits<float>::quiet_NaN();
  } else {
    s = quantize_int8_token(values, n, q.data());
  }
  for (std::int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(q[static_cast<std::size_t>(i)]) * s;
}

void ffn(const Expert& expert, Activation activation, const QuantConfig* quant, std::int64_t rows, const double* x,
         double* out) {
  const std::int64_t width = expert.intermediate;
  const bool gated = is_gated(activation);
  if (expert.up.empty() == gated)
    throw InputError(
        fmt::format("reference: {} wants experts {} an up matrix", name(activation), gated ? "with" : "without"));
  std::vector<double> gate(static_cast<std::size_t>(rows * width)), up(gate.size());
  gemm(expert.gate, expert.gate_bias, width, expert.hidden, rows, x, gate.data());
  if (gated) gemm(expert.up, expert.up_bias, width, expert.hidden, rows, x, up.data());
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = activate(activation, gate[i], up[i]);
  if (quant != nullptr && quant->compute != ComputeType::f32) {
    std::vector<float> row(static_cast<std::size_t>(width));
    for (std::int64_t r = 0; r < rows; ++r) {
      double* values = gate.data() + r * width;
      for (std::int64_t i = 0; i < width; ++i) row[static_cast<std::size_t>(i)] = static_cast<float>(values[i]);
      round_activations(quant->compute, quant->a2, width, row.data());
      std::copy(row.begin(), row.end(), values);
    }
  }
  gemm(expert.down, expert.down_bias, expert.hidden, width, rows, gate.data(), out);
}

}  // namespace epmoe::reference
