// AArch64 with SVE of 256 bits and its matrix instructions: Neoverse V1 (Graviton3); empty elsewhere.
#if defined(__aarch64__)
#define EPMOE_KERNEL_NAME kernels_sve256_i8mm_bf16
#define EPMOE_VECTOR_BYTES 32
#define EPMOE_VECTOR_REGISTERS 32
#define EPMOE_SVE
#include "experts/kernels/arm_level.hpp"
#endif
