// The portable kernels: included once per ISA level by a file that defines
//   EPMOE_KERNEL_NAME       the exported KernelFunctions
//   EPMOE_VECTOR_BYTES      bytes of a vector register
//   EPMOE_VECTOR_REGISTERS  how many of them there are
// and is compiled with that level's flags. Plain C++ on the compiler's vector type; everything has internal linkage.
#include <stdint.h>

#include "experts/kernels/kernel_set.hpp"

#if defined(__clang__)
#define EPMOE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define EPMOE_UNROLL _Pragma("GCC unroll 16")
#endif

namespace epmoe::kernels {
namespace {

constexpr int kLanes = EPMOE_VECTOR_BYTES / 4;
using F32 [[gnu::vector_size(EPMOE_VECTOR_BYTES)]] = float;
using I32 [[gnu::vector_size(EPMOE_VECTOR_BYTES)]] = int32_t;
using U32 [[gnu::vector_size(EPMOE_VECTOR_BYTES)]] = uint32_t;
using I16 [[gnu::vector_size(EPMOE_VECTOR_BYTES)]] = int16_t;
using U16 [[gnu::vector_size(EPMOE_VECTOR_BYTES)]] = uint16_t;
using HalfU16 [[gnu::vector_size(EPMOE_VECTOR_BYTES / 2)]] = uint16_t;

template <class V>
inline V load(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class V>
inline void store(void* p, const V& v) {
  __builtin_memcpy(p, &v, sizeof v);
}
inline U32 splat_word(const void* p) {
  uint32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return U32{} + word;
}
inline F32 splat(float value) {
  uint32_t word;
  __builtin_memcpy(&word, &value, sizeof word);
  return (F32)(U32{} + word);
}
inline F32 select(const I32& mask, const F32& yes, const F32& no) {
  return (F32)(((U32)mask & (U32)yes) | (~(U32)mask & (U32)no));
}

// ---- GEMM: the three number formats differ in how one word of a row meets one word of each column.

struct F32Words {
  using Accumulator = F32;
  struct Weight {
    F32 w;
  };
  static inline Weight weight(const void* p) { return {load<F32>(p)}; }
  using Row = F32;
  static inline Row row(const void* p) { return (F32)splat_word(p); }
  static inline void add(F32& acc, const Row& a, const Weight& w) { acc += a * w.w; }
};

struct Bf16Words {  // two values a word; a product of two bf16 is exact in f32
  using Accumulator = F32;
  struct Pair {
    F32 first, second;
  };
  using Weight = Pair;
  using Row = Pair;
  static inline Pair widen(const U32& word) { return {(F32)(word << 16), (F32)(word & 0xffff0000U)}; }
  static inline Weight weight(const void* p) { return widen(load<U32>(p)); }
  static inline Row row(const void* p) { return widen(splat_word(p)); }
  static inline void add(F32& acc, const Row& a, const Weight& w) {
    acc += a.first * w.first;
    acc += a.second * w.second;
  }
};

struct Int8Words {  // four values a word, as two vectors of 16 bits: bytes 0 and 2, bytes 1 and 3
  using Accumulator = I32;
  struct Pair {
    I16 even, odd;
  };
  using Weight = Pair;
  using Row = Pair;
  static inline Pair widen(const U32& word) { return {(I16)((U16)word << 8) >> 8, (I16)word >> 8}; }
  static inline Weight weight(const void* p) { return widen(load<U32>(p)); }
  static inline Row row(const void* p) { return widen(splat_word(p)); }
  static inline void add(I32& acc, const Row& a, const Weight& w) {
    // Two products of at most 128 * 127 fit 16 bits (weights are never -128).
    const I32 sums = (I32)(a.even * w.even + a.odd * w.odd);
    acc += (I32)((U32)sums << 16) >> 16;
    acc += sums >> 16;
  }
};

/// Words of K per block: 64 KiB of a panel, which stays in cache while the row tiles pass over it. Sums are parked in
/// C between blocks, so their order does not change.
constexpr int64_t kBlockWords = 256;
constexpr int64_t kPrefetchBytes = 24 * kPanelWordBytes;
constexpr int kMaxTileRows = 6;
constexpr int kAccumulators = EPMOE_VECTOR_REGISTERS >= 32 ? 24 : 12;

/// Column vectors a tile of `rows` rows holds at once.
constexpr int tile_vectors(int rows) {
  int vectors = 1;
  while (vectors * 2 * rows <= kAccumulators && vectors * 2 * kLanes <= kPanelColumns) vectors *= 2;
  return vectors;
}

template <class Words, int Rows>
inline void gemm_tile(const PanelGemm& g, int64_t row, int64_t word_begin, int64_t word_end, int64_t column) {
  constexpr int kVectors = tile_vectors(Rows);
  using Accumulator = typename Words::Accumulator;
  Accumulator acc[Rows][kVectors];
  float* c = g.c + row * g.c_stride + column;
  if (word_begin == 0) {
    EPMOE_UNROLL
    for (int r = 0; r < Rows; ++r) {
      EPMOE_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[r][v] = Accumulator{};
    }
  } else {
    EPMOE_UNROLL
    for (int r = 0; r < Rows; ++r) {
      EPMOE_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[r][v] = load<Accumulator>(c + r * g.c_stride + v * kLanes);
    }
  }
  const char* w = static_cast<const char*>(g.w) + word_begin * kPanelWordBytes + column * 4;
  const char* a = static_cast<const char*>(g.a) + row * g.a_stride_bytes + word_begin * 4;
  // A tile narrower than the panel would read memory in strides, which hardware does not foresee: its first pass
  // fetches whole words for the passes that follow. (A prefetch past the end is harmless.)
  const bool fetch = kVectors * kLanes < kPanelColumns && column == 0;
  for (int64_t word = word_begin; word < word_end; ++word, w += kPanelWordBytes, a += 4) {
    if (fetch) {
      EPMOE_UNROLL
      for (int line = 0; line < kPanelWordBytes; line += 64) __builtin_prefetch(w + kPrefetchBytes + line);
    }
    typename Words::Weight weight[kVectors];
    EPMOE_UNROLL
    for (int v = 0; v < kVectors; ++v) weight[v] = Words::weight(w + v * EPMOE_VECTOR_BYTES);
    EPMOE_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const typename Words::Row value = Words::row(a + r * g.a_stride_bytes);
      EPMOE_UNROLL
      for (int v = 0; v < kVectors; ++v) Words::add(acc[r][v], value, weight[v]);
    }
  }
  EPMOE_UNROLL
  for (int r = 0; r < Rows; ++r) {
    EPMOE_UNROLL
    for (int v = 0; v < kVectors; ++v) store(c + r * g.c_stride + v * kLanes, acc[r][v]);
  }
}

template <class Words, int Rows>
inline void gemm_tiles(const PanelGemm& g, int64_t row_begin, int64_t row_end, int64_t word_begin, int64_t word_end) {
  for (int64_t column = 0; column < kPanelColumns; column += tile_vectors(Rows) * kLanes)
    for (int64_t row = row_begin; row < row_end; row += Rows)
      gemm_tile<Words, Rows>(g, row, word_begin, word_end, column);
}

template <class Words>
inline void gemm_sums(const PanelGemm& g) {
  const int64_t whole = g.rows / kMaxTileRows * kMaxTileRows;
  for (int64_t begin = 0; begin < g.words; begin += kBlockWords) {
    const int64_t end = begin + kBlockWords < g.words ? begin + kBlockWords : g.words;
    if (whole > 0) gemm_tiles<Words, kMaxTileRows>(g, 0, whole, begin, end);
    switch (g.rows - whole) {
      case 1: gemm_tiles<Words, 1>(g, whole, g.rows, begin, end); break;
      case 2: gemm_tiles<Words, 2>(g, whole, g.rows, begin, end); break;
      case 3: gemm_tiles<Words, 3>(g, whole, g.rows, begin, end); break;
      case 4: gemm_tiles<Words, 4>(g, whole, g.rows, begin, end); break;
      case 5: gemm_tiles<Words, 5>(g, whole, g.rows, begin, end); break;
      default: break;
    }
  }
}

inline void add_bias(const PanelGemm& g) {
  if (g.bias == nullptr) return;
  for (int64_t r = 0; r < g.rows; ++r)
    for (int64_t n = 0; n < kPanelColumns; n += kLanes) {
      float* c = g.c + r * g.c_stride + n;
      store(c, load<F32>(c) + load<F32>(g.bias + n));
    }
}

void gemm_f32(const PanelGemm& g) {
  gemm_sums<F32Words>(g);
  add_bias(g);
}

void gemm_bf16(const PanelGemm& g) {
  gemm_sums<Bf16Words>(g);
  add_bias(g);
}

void gemm_int8(const PanelGemm& g) {
  gemm_sums<Int8Words>(g);  // C holds int32 sums
  for (int64_t r = 0; r < g.rows; ++r) {
    const F32 row_scale = splat(g.row_scale[r]);
    for (int64_t n = 0; n < kPanelColumns; n += kLanes) {
      float* c = g.c + r * g.c_stride + n;
      store(c, __builtin_convertvector(load<I32>(c), F32) * (row_scale * load<F32>(g.channel_scale + n)));
    }
  }
  add_bias(g);
}

// ---- Elementary functions: polynomials fitted for f32 without fused operations; comparisons let NaN through.

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

inline F32 swiglu_oai(const F32& gate, const F32& up) {
  const F32 g = select(gate > splat(7.0F), splat(7.0F), gate);
  F32 u = select(up > splat(7.0F), splat(7.0F), up);
  u = select(u < splat(-7.0F), splat(-7.0F), u);
  return (u + splat(1.0F)) * (g / (splat(1.0F) + exp_vector(-(splat(1.702F) * g))));
}

inline HalfU16 bf16_bits(const F32& value) {
  const U32 bits = (U32)value;
  const I32 nan = (I32)(bits & 0x7fffffffU) > (I32)(U32{} + 0x7f800000U);
  const U32 rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const U32 quiet = (bits >> 16) | 0x40U;
  return __builtin_convertvector(((U32)nan & quiet) | (~(U32)nan & rounded), HalfU16);
}

template <ActivationKind Kind>
inline void activate_rows(const PanelActivation& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    char* out = static_cast<char*>(p.out) + r * p.out_stride_bytes;
    for (int64_t n = 0; n < kPanelColumns; n += kLanes) {
      const F32 gate = load<F32>(p.gate + r * p.stride + n);
      const F32 up = load<F32>(p.up + r * p.stride + n);
      F32 value;
      if constexpr (Kind == ActivationKind::silu)
        value = silu(gate) * up;
      else if constexpr (Kind == ActivationKind::gelu)
        value = gelu(gate) * up;
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

extern const KernelFunctions EPMOE_KERNEL_NAME;
constinit const KernelFunctions EPMOE_KERNEL_NAME = {gemm_f32,   gemm_bf16, gemm_int8, activate,
                                                     round_bf16, exp_array, erf_array};

}  // namespace epmoe::kernels
