// AArch64 with the matrix instructions for int8 and bf16: Neoverse N2, V2 (Grace, Graviton4); empty elsewhere.
#if defined(__aarch64__)
#define EPMOE_KERNEL_NAME kernels_neon_i8mm_bf16
#define EPMOE_VECTOR_BYTES 16
#define EPMOE_VECTOR_REGISTERS 32
#include "experts/kernels/arm_level.hpp"
#endif
