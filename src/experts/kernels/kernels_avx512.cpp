// Compiled with AVX-512 F, BW, DQ and VL on x86-64 (kernels.cmake); empty elsewhere.
#if defined(__AVX512F__)
#define EPMOE_KERNEL_NAME kernels_avx512
#define EPMOE_VECTOR_BYTES 64
#define EPMOE_VECTOR_REGISTERS 32
#include "experts/kernels/portable_kernels.hpp"
#endif
