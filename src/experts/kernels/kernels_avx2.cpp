// Compiled with -mavx2 -mfma -mf16c on x86-64 (kernels.cmake); empty elsewhere.
#if defined(__AVX2__)
#define EPMOE_KERNEL_NAME kernels_avx2
#define EPMOE_VECTOR_BYTES 32
#define EPMOE_VECTOR_REGISTERS 16
#include "experts/kernels/portable_kernels.hpp"
#endif
