#include "epmoe/runtime/random_model.hpp"

#include <cmath>
#include <vector>

#include "epmoe/core/random.hpp"

namespace epmoe {
namespace {

/// A dense matrix of one of the checkpoint dtypes.
struct Matrix {
  AlignedBuffer memory;
  MatrixView view;
  Matrix(DType dtype, std::int64_t rows, std::int64_t cols)
      : memory(rows * cols * size_bytes(dtype)), view{memory.data(), dtype, rows, cols, cols, MemorySpace::host} {}
  /// `stream` keeps the tensors of a model apart.
  void fill(std::uint64_t seed, std::uint64_t stream) {
    const auto scale = std::sqrt(12.0F / static_cast<float>(view.cols));  // uniform values vary by 1 / 12
    std::vector<float> row(static_cast<std::size_t>(view.cols));
    for (std::int64_t r = 0; r < view.rows; ++r) {
      for (std::size_t c = 0; c < row.size(); ++c)
        row[c] =
            (random_uniform(seed + stream * 0x9e3779b97f4a7c15ULL, static_cast<std::uint64_t>(r), c) - 0.5F) * scale;
      write_row(view, r, row.data());
    }
  }
};

struct ExpertMatrices {
  Matrix gate, up, down;
  ExpertMatrices(DType dtype, std::int64_t hidden, std::int64_t intermediate, bool gated)
      : gate(dtype, intermediate, hidden),
        up(dtype, gated ? intermediate : 0, hidden),
        down(dtype, hidden, intermediate) {}
  ExpertWeights fill(std::uint64_t seed, std::uint64_t stream) {
    gate.fill(seed, 3 * stream);
    up.fill(seed, 3 * stream + 1);
    down.fill(seed, 3 * stream + 2);
    return {gate.view, up.view, down.view, {}, {}, {}};
  }
};

}  // namespace

struct RandomLayer::Weights {
  MoeConfig config;
  DType dtype;
  std::uint64_t seed;
  std::int64_t layer;
  Matrix router;
  Matrix shared_gate;
  ExpertMatrices routed;
  ExpertMatrices shared;
  Weights(const MoeConfig& c, DType d, std::uint64_t s, std::int64_t l)
      : config(c),
        dtype(d),
        seed(s),
        layer(l),
        router(d, c.experts, c.hidden),
        shared_gate(d, c.shared_gate ? 1 : 0, c.hidden),
        routed(d, c.hidden, c.intermediate, is_gated(c.activation)),
        shared(d, c.hidden, c.shared_intermediate, is_gated(c.activation)) {
    router.fill(seed, stream(0));
  }
  /// Every layer has room for 2^20 tensors.
  [[nodiscard]] std::uint64_t stream(std::uint64_t tensor) const {
    return (static_cast<std::uint64_t>(layer) + 1) * (1ULL << 20U) + tensor;
  }
};

RandomLayer::RandomLayer(const MoeConfig& config, DType dtype, std::uint64_t seed, std::int64_t layer) {
  config.validate();
  weights_ = std::make_unique<Weights>(config, dtype, seed, layer);
}
RandomLayer::~RandomLayer() = default;

LayerSource RandomLayer::source() {
  auto* w = weights_.get();
  LayerSource source;
  source.config = w->config;
  source.layer = w->layer;
  source.router = w->router.view;
  if (w->config.routing.has_correction_bias)
    for (std::int64_t e = 0; e < w->config.experts; ++e)
      source.correction_bias.push_back(0.1F * random_normal(w->seed, w->stream(1), static_cast<std::uint64_t>(e)));
  source.expert = [w](std::int32_t e) {
    return w->routed.fill(w->seed, w->stream(16) + static_cast<std::uint64_t>(e));
  };
  if (w->config.shared_intermediate > 0) source.shared = w->shared.fill(w->seed, w->stream(2));
  if (w->config.shared_gate) {
    w->shared_gate.fill(w->seed, w->stream(3));
    source.shared_gate = w->shared_gate.view;
  }
  return source;
}

MoeConfig default_model_config() {
  MoeConfig config;
  config.hidden = 512;
  config.intermediate = 256;
  config.experts = 64;
  config.top_k = 8;
  config.activation = Activation::silu;
  config.routing.renormalize = true;
  return config;
}

void random_hidden_states(std::uint64_t seed, std::int64_t first_row, MatrixView x) {
  const auto rows = x.as<float, Token, Hidden>();
  for (std::int64_t r = 0; r < rows.rows; ++r)
    for (std::int64_t c = 0; c < rows.cols; ++c)
      rows(r, c) = random_normal(seed, static_cast<std::uint64_t>(first_row + r), static_cast<std::uint64_t>(c));
}

}  // namespace epmoe
