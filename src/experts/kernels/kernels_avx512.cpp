// x86-64 with AVX-512 F, BW, DQ and VL; empty elsewhere.
#if defined(__AVX512F__)
#define EPMOE_KERNEL_NAME kernels_avx512
#define EPMOE_VECTOR_BYTES 64
#define EPMOE_VECTOR_REGISTERS 32
#include "experts/kernels/level.hpp"
#endif
