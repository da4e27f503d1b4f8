#pragma once
// Elementary functions and activations: polynomials fitted for f32 without fused operations, so that all levels give
// the same bits; comparisons let NaN through.
#include "experts/kernels/vectors.hpp"

namespace epmoe::kernels {
namespace {

inline F32 exp_vector(const F32& x) {
  F32 c = select(x > splat(89.0F), splat(89.0F), x);  // above: Inf, below -104: rounds to 0
  c = select(c < splat(-104.0F), splat(-104.0F), c);
  const F32 shifted = c * splat(1.44269504F) + splat(12582912.0F);  // the integer part, in the low bits of 1.5 * 2^23
  const F32 n = shifted - splat(12582912.0F);
  const F32 r = (c - n * splat(0.693359375F)) - n * splat(-2.12194440e-4F);  // n * (9 bits) is exact
  F32 p = splat(0.001381453825160861F);
  p = p * r + splat(0.00836874544620514F);
  p = p * r + splat(0.04166838899254799F);
  p = p * r + splat(0.1666652113199234F);
  p = p * r + splat(0.4999999403953552F);
  p = (p * (r * r) + r) + splat(1.0F);
  // 2^n in two factors, since n reaches past the normal exponents at both ends. Signed shift, so that half of a
  // negative n is right.
  const I32 whole = (I32)((U32)shifted - (U32)splat(12582912.0F));
  const I32 half = whole >> 1;
  const F32 scale1 = (F32)(((U32)half + 127U) << 23);
  const F32 scale2 = (F32)(((U32)whole - (U32)half + 127U) << 23);
  return (p * scale1) * scale2;
}

/// erfc(z) for z >= 0: exp(-z^2) * P(s) / (1 + 2 z), s = (z - 2.5) / (z + 2.5).
inline F32 erfc_vector(const F32& z) {
  const F32 c = select(z > splat(10.0F), splat(10.0F), z);
  const F32 s = (c - splat(2.5F)) / (c + splat(2.5F));
  F32 p = splat(0.0004459863413193454F);
  p = p * s + splat(0.00031025410862639546F);
  p = p * s + splat(-0.004292967729270458F);
  p = p * s + splat(0.001036765519529581F);
  p = p * s + splat(0.03274530544877052F);
  p = p * s + splat(-0.10298992693424225F);
  p = p * s + splat(0.15763090550899506F);
  p = p * s + splat(-0.09902283549308777F);
  p = p * s + splat(-0.12235678732395172F);
  p = p * s + splat(1.2648382186889648F);
  return exp_vector(-(z * z)) * (p / (c + c + splat(1.0F)));
}

inline F32 absolute(const F32& x) {
  return (F32)((U32)x & 0x7fffffffU);
}

inline F32 erf_vector(const F32& x) {
  const F32 magnitude = splat(1.0F) - erfc_vector(absolute(x));
  return (F32)((U32)magnitude | ((U32)x & 0x80000000U));
}

inline F32 silu(const F32& g) {
  return g / (splat(1.0F) + exp_vector(-g));
}

inline F32 gelu(const F32& g) {
  const F32 tail = splat(0.5F) * erfc_vector(absolute(g) * splat(0.70710678F));
  return g * select(g < splat(0.0F), tail, splat(1.0F) - tail);
}

inline F32 gelu_tanh(const F32& g) {
  const F32 twice = splat(1.59576912F) * (g + splat(0.044715F) * (g * g * g));  // 2 sqrt(2 / pi)
  return g / (splat(1.0F) + exp_vector(-twice));
}

inline F32 relu2(const F32& g) {
  const F32 positive = select(g < F32{}, F32{}, g);
  return positive * positive;
}

inline F32 at_most_7(const F32& x) {
  return select(x > splat(7.0F), splat(7.0F), x);
}

inline F32 within_7(const F32& x) {
  const F32 c = at_most_7(x);
  return select(c < splat(-7.0F), splat(-7.0F), c);
}

inline F32 swiglu_oai(const F32& gate, const F32& up) {
  const F32 g = at_most_7(gate), u = within_7(up);
  return (u + splat(1.0F)) * (g / (splat(1.0F) + exp_vector(-(splat(1.702F) * g))));
}

inline HalfU16 bf16_bits(const F32& value) {
  const U32 bits = (U32)value;
  const I32 nan = (I32)(bits & 0x7fffffffU) > (I32)(U32{} + 0x7f800000U);
  const U32 rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const U32 quiet = (bits >> 16) | 0x40U;
  return __builtin_convertvector(((U32)nan & quiet) | (~(U32)nan & rounded), HalfU16);
}

/// The function of gate that a kind without up is.
template <ActivationKind Kind>
inline F32 activate_alone(const F32& gate) {
  if constexpr (Kind == ActivationKind::silu_no_mul) return silu(gate);
  if constexpr (Kind == ActivationKind::gelu_no_mul) return gelu(gate);
  if constexpr (Kind == ActivationKind::gelu_tanh_no_mul) return gelu_tanh(gate);
  return relu2(gate);
}

template <ActivationKind Kind>
inline void activate_rows(const PanelActivation& p) {
  constexpr bool kAlone = Kind >= ActivationKind::silu_no_mul;
  for (int64_t r = 0; r < p.rows; ++r) {
    char* out = static_cast<char*>(p.out) + r * p.out_stride_bytes;
    for (int64_t n = 0; n < kPanelColumns; n += kLanes) {
      const F32 gate = load<F32>(p.gate + r * p.stride + n);
      F32 up{}, value;
      if constexpr (!kAlone) up = load<F32>(p.up + r * p.stride + n);
      if constexpr (kAlone)
        value = activate_alone<Kind>(gate);
      else if constexpr (Kind == ActivationKind::silu)
        value = silu(gate) * up;
      else if constexpr (Kind == ActivationKind::gelu)
        value = gelu(gate) * up;
      else if constexpr (Kind == ActivationKind::gelu_tanh)
        value = gelu_tanh(gate) * up;
      else if constexpr (Kind == ActivationKind::relu2)
        value = relu2(gate) * up;
      else if constexpr (Kind == ActivationKind::silu_clamped)
        value = silu(at_most_7(gate)) * within_7(up);
      else
        value = swiglu_oai(gate, up);
      if (p.out_bf16)
        store(out + n * 2, bf16_bits(value));
      else
        store(out + n * 4, value);
    }
  }
}

void activate(const PanelActivation& p) {
  switch (p.kind) {
    case ActivationKind::silu: activate_rows<ActivationKind::silu>(p); break;
    case ActivationKind::gelu: activate_rows<ActivationKind::gelu>(p); break;
    case ActivationKind::swiglu_oai: activate_rows<ActivationKind::swiglu_oai>(p); break;
    case ActivationKind::gelu_tanh: activate_rows<ActivationKind::gelu_tanh>(p); break;
    case ActivationKind::relu2: activate_rows<ActivationKind::relu2>(p); break;
    case ActivationKind::silu_clamped: activate_rows<ActivationKind::silu_clamped>(p); break;
    case ActivationKind::silu_no_mul: activate_rows<ActivationKind::silu_no_mul>(p); break;
    case ActivationKind::gelu_no_mul: activate_rows<ActivationKind::gelu_no_mul>(p); break;
    case ActivationKind::gelu_tanh_no_mul: activate_rows<ActivationKind::gelu_tanh_no_mul>(p); break;
    case ActivationKind::relu2_no_mul: activate_rows<ActivationKind::relu2_no_mul>(p); break;
  }
}

/// Applies a vector function to n values; the tail goes through a padded vector, never through other code.
template <class Function>
inline void map(const float* in, int64_t n, Function apply) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) apply(load<F32>(in + i), i, int64_t{kLanes});
  if (i < n) {
    F32 tail{};
    __builtin_memcpy(&tail, in + i, static_cast<uint64_t>(n - i) * 4);
    apply(tail, i, n - i);
  }
}

void round_bf16(const float* in, int64_t n, uint16_t* out) {
  map(in, n, [out](const F32& value, int64_t i, int64_t count) {
    const HalfU16 bits = bf16_bits(value);
    __builtin_memcpy(out + i, &bits, static_cast<uint64_t>(count) * 2);
  });
}

int32_t max_magnitude(const float* in, int64_t n) {
  I32 most{};  // integers order like the magnitudes they encode, and NaN lies above Inf
  map(in, n, [&most](const F32& value, int64_t, int64_t) {
    const I32 magnitude = (I32)((U32)value & 0x7fffffffU);
    const I32 larger = magnitude > most;
    most = (magnitude & larger) | (most & ~larger);
  });
  int32_t result = 0;
  for (int lane = 0; lane < kLanes; ++lane) result = most[lane] > result ? most[lane] : result;
  return result;
}

void round_int8(const float* in, int64_t n, float scale, uint8_t flip, uint8_t* out) {
  // Clamping first changes nothing, as the bounds are integers. Adding 1.5 * 2^23 leaves the integer, rounded to
  // nearest even, in the low bits.
  const U32 flips = U32{} + flip;
  const F32 divisor = splat(scale);
  map(in, n, [&](const F32& value, int64_t i, int64_t count) {
    F32 v = value / divisor;
    v = select(v == v, v, F32{});
    v = select(v > splat(127.0F), splat(127.0F), v);
    v = select(v < splat(-127.0F), splat(-127.0F), v);
    const QuarterU8 bytes = __builtin_convertvector((U32)(v + splat(12582912.0F)) ^ flips, QuarterU8);
    __builtin_memcpy(out + i, &bytes, static_cast<uint64_t>(count));
  });
}

void part_sums(const int8_t* in, int64_t n, int64_t part, int32_t* sums) {
  constexpr int64_t kBytes = 16;
  using Bytes [[gnu::vector_size(kBytes)]] = int8_t;
  using Wide [[gnu::vector_size(2 * kBytes)]] = int16_t;
  for (int64_t begin = 0; begin < n; begin += part, ++sums) {
    const int64_t end = begin + part < n ? begin + part : n;
    Wide wide{};  // at most 32 times the largest byte in each of 16 sums
    int32_t sum = 0;
    for (int64_t i = begin; i < end;) {
      for (int64_t stop = i + 32 * kBytes < end ? i + 32 * kBytes : end; i < stop; i += kBytes)
        wide += __builtin_convertvector(load<Bytes>(in + i), Wide);
      for (int lane = 0; lane < kBytes; ++lane) sum += wide[lane];
      wide = Wide{};
    }
    *sums = sum;
  }
}

void exp_array(const float* in, int64_t n, float* out) {
  map(in, n, [out](const F32& value, int64_t i, int64_t count) {
    const F32 result = exp_vector(value);
    __builtin_memcpy(out + i, &result, static_cast<uint64_t>(count) * 4);
  });
}

void erf_array(const float* in, int64_t n, float* out) {
  map(in, n, [out](const F32& value, int64_t i, int64_t count) {
    const F32 result = erf_vector(value);
    __builtin_memcpy(out + i, &result, static_cast<uint64_t>(count) * 4);
  });
}

}  // namespace
}  // namespace epmoe::kernels
