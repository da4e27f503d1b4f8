// x86-64 with AVX-512 and its int8 and bf16 dot products (Cooper Lake); empty elsewhere.
#if defined(__AVX512BF16__)
#define EPMOE_KERNEL_NAME kernels_avx512_bf16
#define EPMOE_VECTOR_BYTES 64
#define EPMOE_VECTOR_REGISTERS 32
#include "experts/kernels/level.hpp"
#endif
