// The architecture's baseline: SSE2 on x86-64, NEON on AArch64.
#define EPMOE_KERNEL_NAME kernels_generic
#define EPMOE_VECTOR_BYTES 16
#define EPMOE_VECTOR_REGISTERS 16
#include "experts/kernels/level.hpp"
