// AArch64 with the int8 and bf16 matrix products; empty elsewhere.
#if defined(__ARM_FEATURE_MATMUL_INT8) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define EPMOE_PROBE_NAME probe_neon_i8mm_bf16
#define EPMOE_VECTOR_BYTES 16
#define EPMOE_VECTOR_REGISTERS 32
#include "experts/kernels/probe_loops.hpp"
#endif
