// AArch64 with SVE of 512 bits and no matrix instructions: A64FX; empty elsewhere.
#if defined(__aarch64__)
#define EPMOE_KERNEL_NAME kernels_sve512
#define EPMOE_VECTOR_BYTES 64
#define EPMOE_VECTOR_REGISTERS 32
#define EPMOE_SVE
#include "experts/kernels/arm_level.hpp"
#endif
