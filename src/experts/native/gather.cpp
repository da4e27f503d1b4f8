#include "experts/native/gather.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "epmoe/core/error.hpp"
#include "epmoe/quantize/int8.hpp"
#include "epmoe/quantize/row_format.hpp"

namespace epmoe::native {
namespace {

constexpr std::int64_t kPieceValues = 256;

/// Piece by piece, so that the f32 values of a row never leave the first cache.
void convert_to_bf16(const kernels::KernelFunctions& kernels, const RowSource& source, std::int64_t hidden,
                     std::byte* out) {
  alignas(64) float piece[kPieceValues];
  alignas(64) std::uint16_t bits[kPieceValues];
  for (std::int64_t begin = 0; begin < hidden; begin += kPieceValues) {
    const std::int64_t count = std::min(kPieceValues, hidden - begin);
    decode_hidden(source.type, source.values + begin * value_bytes(source.type), source.scale, count, piece);
    kernels.round_bf16(piece, count, bits);
    std::memcpy(out + begin * 2, bits, static_cast<std::size_t>(count) * 2);
  }
}

/// Pads a row of `used` bytes to the stride, and makes it unsigned where the kernels want that.
void finish_row(const GemmRows& to, std::byte* row, std::int64_t used) {
  std::memset(row + used, 0, static_cast<std::size_t>(to.stride_bytes - used));
  if (!to.unsigned_rows) return;
  for (std::int64_t i = 0; i < to.stride_bytes; ++i) row[i] ^= std::byte{0x80};
}

}  // namespace

kernels::ActivationKind kind_of(Activation activation) {
  switch (activation) {
    case Activation::silu: return kernels::ActivationKind::silu;
    case Activation::gelu: return kernels::ActivationKind::gelu;
    case Activation::swiglu_oai: return kernels::ActivationKind::swiglu_oai;
  }
  throw ConfigError("experts: unknown activation");
}

float quantize_row(const ScaleConfig& scale, const float* in, std::int64_t n, std::byte* out) {
  auto* q = reinterpret_cast<std::int8_t*>(out);
  if (!scale.is_static) return quantize_int8_token(in, n, q);
  bool finite = true;
  quantize_int8_static(in, n, *scale.static_scale, q, &finite);
  return finite ? *scale.static_scale : std::numeric_limits<float>::quiet_NaN();  // a NaN row must not become zeros
}

float convert_row(const ExpertsConfig& config, const kernels::KernelFunctions& kernels, const RowSource& source,
                  std::byte* out, float* scratch) {
  const std::int64_t hidden = config.shape.hidden;
  switch (config.quant.compute) {
    case ComputeType::f32:
      decode_hidden(source.type, source.values, source.scale, hidden, reinterpret_cast<float*>(out));
      return 1.0F;
    case ComputeType::bf16:
      if (source.type == DispatchType::bf16)
        std::memcpy(out, source.values, static_cast<std::size_t>(hidden) * 2);
      else
        convert_to_bf16(kernels, source, hidden, out);
      return 1.0F;
    case ComputeType::int8:
      if (source.type == DispatchType::int8) {  // passed through: quantising again would round twice
        std::memcpy(out, source.values, static_cast<std::size_t>(hidden));
        return source.scale;
      }
      decode_hidden(source.type, source.values, source.scale, hidden, scratch);
      return quantize_row(config.quant.a1, scratch, hidden, out);
  }
  return 1.0F;
}

void gather(const ExpertsConfig& config, const kernels::KernelFunctions& kernels, const ExpertBatch& batch,
            const ExpertIndex& index, const BatchRows& from, const GemmRows& to, const GatherScratch& scratch,
            const ExecutionContext& context) {
  const PhaseTimer timer(context, Phase::permute);
  const std::int64_t used_bytes = config.shape.hidden * (config.quant.compute == ComputeType::f32    ? 4
                                                         : config.quant.compute == ComputeType::bf16 ? 2
                                                                                                     : 1);
  const auto body = [&](std::int64_t task, int) {
    const std::int64_t end = std::min((task + 1) * kEntriesPerTask, index.entries);
    for (std::int64_t i = task * kEntriesPerTask; i < end; ++i) {
      const std::int64_t row = index.row[static_cast<std::size_t>(i)];
      const RowSource source{batch.type, from.row(row), batch.type == DispatchType::int8 ? from.scale(row) : 1.0F};
      std::byte* out = to.data + i * to.stride_bytes;
      const float scale = convert_row(config, kernels, source, out, scratch.rows + task * scratch.stride);
      finish_row(to, out, used_bytes);
      if (to.scales != nullptr) to.scales[i] = scale;
    }
  };
  context.executor->run(ceil_div(index.entries, kEntriesPerTask), body, context.progress);
}

void quantize_rows(const ScaleConfig& scale, const float* activation, std::int64_t stride, std::int64_t n,
                   std::int64_t count, const GemmRows& to, const ExecutionContext& context) {
  const PhaseTimer timer(context, Phase::act);
  const auto body = [&](std::int64_t task, int) {
    const std::int64_t end = std::min((task + 1) * kEntriesPerTask, count);
    for (std::int64_t i = task * kEntriesPerTask; i < end; ++i) {
      std::byte* out = to.data + i * to.stride_bytes;
      to.scales[i] = quantize_row(scale, activation + i * stride, n, out);
      finish_row(to, out, n);
    }
  };
  context.executor->run(ceil_div(count, kEntriesPerTask), body, context.progress);
}

}  // namespace epmoe::native
