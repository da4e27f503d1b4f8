#pragma once
#include <stdint.h>

/// What one ISA level offers to the native back end. Files compiled with ISA flags include this and <stdint.h> only:
/// an inline function of a shared header compiled there could be the copy the linker keeps for everyone.
namespace epmoe {
struct CpuFeatures;
}
namespace epmoe::kernels {

/// Columns of a packed panel. A panel is [K/v][64 columns][v] values; v values are one word, 4 bytes unless the set
/// says 8.
constexpr int64_t kPanelColumns = 64;
constexpr int64_t kPanelWordBytes = 256;  ///< one 4-byte word of each column

/// c[r][0..64) = (a[r] . w[:, n]) for all K of one panel, scaled (int8) and with bias. Every sum runs over ascending k
/// in an order and rounding that the set fixes (`Rounding`), whatever `rows` is.
struct PanelGemm {
  const void* const* a = nullptr;        ///< [rows] pointers to rows in the compute type, of the panel's padded K
  const void* w = nullptr;               ///< the panel
  const void* next = nullptr;            ///< the panel of the same size that is wanted next, or null: fetched ahead
  float* c = nullptr;                    ///< [rows][64]; overwritten
  int64_t c_stride = 0;                  ///< in floats
  int64_t rows = 0;                      ///< at least 1
  int64_t words = 0;                     ///< padded K / v
  const float* row_scale = nullptr;      ///< int8: [rows]
  const float* channel_scale = nullptr;  ///< int8: [64]
  const int32_t* column_sum = nullptr;   ///< int8: [64], for kernels that shift rows to unsigned
  const float* bias = nullptr;           ///< [64] or null
};

enum class NarrowValues : uint8_t { f16, fp8_e4m3, int4, mxfp4 };

/// K is summed in parts of so many values where weights are narrow: a group, or a piece of a longer one.
constexpr int64_t kPartValues = 128;

/// PanelGemm for weights stored narrower than they are multiplied: f32 rows for f16, else bf16; int8 rows for int4
/// weights if they have scales. The panel is [K/p][64] words of 4 bytes with p = 2, 4 or 8 values: value 2 i + h at
/// place i of half h, or value 4 i + b at place i of byte b for int8 rows.
struct DecodedGemm {
  NarrowValues values = NarrowValues::int4;
  const void* const* a = nullptr;    ///< [rows] pointers to rows of k values, int8: then int32 sums of their parts
  const float* row_scale = nullptr;  ///< int8 rows: [rows]
  const void* w = nullptr;
  const void* next = nullptr;            ///< the panel that is wanted next, or null: its beginning is fetched ahead
  const void* scales = nullptr;          ///< [groups][64] f32, E8M0 codes for mxfp4; null for f16
  const uint8_t* zero_points = nullptr;  ///< [groups][64], or null: 8
  int64_t k = 0;                         ///< padded, a multiple of 32 (f16: 16)
  int64_t group = 0;                     ///< values of K that share a scale: 32, 64, 128, or k
  int64_t groups = 1;
  float* c = nullptr;  ///< [rows][64]; overwritten
  int64_t c_stride = 0;
  int64_t rows = 0;
  const float* bias = nullptr;  ///< [64] or null
};

enum class ActivationKind : uint8_t {
  silu,
  gelu,
  swiglu_oai,
  gelu_tanh,
  relu2,
  silu_clamped,
  silu_no_mul,
  gelu_no_mul,
  gelu_tanh_no_mul,
  relu2_no_mul
};

/// out[r][0..64) = activation(gate[r], up[r]), f32 or rounded to bf16; _no_mul: of gate alone.
struct PanelActivation {
  ActivationKind kind = ActivationKind::silu;
  const float* gate = nullptr;  ///< [rows][64]
  const float* up = nullptr;    ///< not read by the kinds _no_mul
  int64_t stride = 0;           ///< of both, in floats
  int64_t rows = 0;
  void* out = nullptr;
  int64_t out_stride_bytes = 0;
  bool out_bf16 = false;
};

/// How a set rounds while it sums floats.
enum class Rounding : uint8_t {
  separate,  ///< each product, then each sum
  fused,     ///< each product and sum together
  pairs,     ///< several products at once, as the CPU's dot-product instruction does
};

struct KernelFunctions {
  void (*gemm_f32)(const PanelGemm&);
  void (*gemm_bf16)(const PanelGemm&);
  void (*gemm_int8)(const PanelGemm&);
  void (*gemm_decoded)(const DecodedGemm&);
  void (*activate)(const PanelActivation&);
  /// Nearest even, NaN stays NaN.
  void (*round_bf16)(const float* in, int64_t n, uint16_t* out);
  /// The largest |x| as bits; those of Inf or more if some x is Inf or NaN.
  int32_t (*max_magnitude)(const float* in, int64_t n);
  /// out = nearest even of in / scale within +-127, NaN gives 0; every byte XOR `flip`.
  void (*round_int8)(const float* in, int64_t n, float scale, uint8_t flip, uint8_t* out);
  /// sums[i] = those of in[i * part ...], up to n; part and n are multiples of 32.
  void (*part_sums)(const int8_t* in, int64_t n, int64_t part, int32_t* sums);
  void (*exp)(const float* in, int64_t n, float* out);  ///< <= 1.1 ulp (half a step more among subnormals)
  void (*erf)(const float* in, int64_t n, float* out);  ///< absolute error <= 4e-7
  Rounding f32_rounding = Rounding::separate;
  Rounding bf16_rounding = Rounding::separate;
  int32_t bf16_word_bytes = 4;  ///< bytes of one column in a panel word: v values
  int32_t int8_word_bytes = 4;
  bool unsigned_int8_rows = false;  ///< int8 rows are wanted as value + 128, `column_sum` takes it off again
};

/// One row of the table of kernel sets. A new ISA is one file with its functions and one row in kernel_table.cpp.
struct KernelSet {
  const char* name;
  bool (*supported)(const CpuFeatures&);
  const KernelFunctions* functions;
};

/// Best first; only those compiled for this architecture.
struct KernelTable {
  const KernelSet* sets;
  int64_t count;
};
KernelTable kernel_table();
/// By name, or the first supported one when `name` is empty; null if unknown or not supported by this CPU.
const KernelSet* find_kernel_set(const char* name);

}  // namespace epmoe::kernels
