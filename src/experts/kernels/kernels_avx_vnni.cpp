// x86-64 with AVX2 and AVX-VNNI (client CPUs without AVX-512); empty elsewhere.
#if defined(__AVXVNNI__)
#define EPMOE_KERNEL_NAME kernels_avx_vnni
#define EPMOE_VECTOR_BYTES 32
#define EPMOE_VECTOR_REGISTERS 16
#include "experts/kernels/level.hpp"
#endif
