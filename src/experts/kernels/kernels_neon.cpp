// AArch64 with nothing but its baseline; empty elsewhere.
#if defined(__aarch64__)
#define EPMOE_KERNEL_NAME kernels_neon
#define EPMOE_VECTOR_BYTES 16
#define EPMOE_VECTOR_REGISTERS 32
#include "experts/kernels/arm_level.hpp"
#endif
