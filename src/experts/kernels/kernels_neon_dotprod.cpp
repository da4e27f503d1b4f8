// AArch64 with the int8 dot product: Neoverse N1 (Graviton2, Altra); empty elsewhere.
#if defined(__aarch64__)
#define EPMOE_KERNEL_NAME kernels_neon_dotprod
#define EPMOE_VECTOR_BYTES 16
#define EPMOE_VECTOR_REGISTERS 32
#include "experts/kernels/arm_level.hpp"
#endif
