// x86-64 with AVX2, FMA and F16C; empty elsewhere.
#if defined(__AVX2__)
#define EPMOE_KERNEL_NAME kernels_avx2
#define EPMOE_VECTOR_BYTES 32
#define EPMOE_VECTOR_REGISTERS 16
#include "experts/kernels/level.hpp"
#endif
