#include "experts/row_conversion.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "epmoe/core/error.hpp"
#include "epmoe/quantize/row_format.hpp"
#include "experts/backends.hpp"
#include "quantize/int8_values.hpp"

namespace epmoe {
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

void copy_flipped(const std::byte* in, std::int64_t n, std::uint8_t flip, std::byte* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = in[i] ^ std::byte{flip};
}

}  // namespace

std::int64_t RowConversion::bytes(std::int64_t n) const {
  return n * experts::packed_layout_of(config).element_bytes();
}

bool RowConversion::unchanged(DispatchType type) const {
  switch (config.quant.compute) {
    case ComputeType::f32: return type == DispatchType::f32;
    case ComputeType::bf16: return type == DispatchType::bf16;
    case ComputeType::int8: return type == DispatchType::int8 && flip == 0;
  }
  throw ConfigError("experts: unknown compute type");
}

float RowConversion::convert(const RowSource& source, std::byte* out, float* scratch) const {
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
        copy_flipped(source.values, hidden, flip, out);
        return source.scale;
      }
      decode_hidden(source.type, source.values, source.scale, hidden, scratch);
      return quantize(config.quant.a1, scratch, hidden, out);
  }
  throw ConfigError("experts: unknown compute type");
}

float RowConversion::quantize(const ScaleConfig& scale, const float* in, std::int64_t n, std::byte* out) const {
  auto* q = reinterpret_cast<std::uint8_t*>(out);
  const std::int32_t magnitude = kernels.max_magnitude(in, n);
  if (magnitude >= int8_values::kInfinityBits) {
    std::memset(q, flip, static_cast<std::size_t>(n));
    return std::numeric_limits<float>::quiet_NaN();  // a NaN row must not become zeros
  }
  const float s = scale.is_static ? *scale.static_scale : int8_values::scale_of(magnitude, int8_values::kTokenEpsilon);
  kernels.round_int8(in, n, s, flip, q);
  return s;
}

kernels::ActivationKind kind_of(Activation activation) {
  switch (activation) {
    case Activation::silu: return kernels::ActivationKind::silu;
    case Activation::gelu: return kernels::ActivationKind::gelu;
    case Activation::swiglu_oai: return kernels::ActivationKind::swiglu_oai;
    case Activation::gelu_tanh: return kernels::ActivationKind::gelu_tanh;
    case Activation::relu2: return kernels::ActivationKind::relu2;
    case Activation::silu_clamped: return kernels::ActivationKind::silu_clamped;
    case Activation::silu_no_mul: return kernels::ActivationKind::silu_no_mul;
    case Activation::gelu_no_mul: return kernels::ActivationKind::gelu_no_mul;
    case Activation::gelu_tanh_no_mul: return kernels::ActivationKind::gelu_tanh_no_mul;
    case Activation::relu2_no_mul: return kernels::ActivationKind::relu2_no_mul;
  }
  throw ConfigError("experts: unknown activation");
}

}  // namespace epmoe
