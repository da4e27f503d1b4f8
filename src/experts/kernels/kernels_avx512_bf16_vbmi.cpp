// x86-64 with AVX-512, its int8 and bf16 dot products and byte permutations (Zen 4, Sapphire Rapids); empty elsewhere.
#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)
#define EPMOE_KERNEL_NAME kernels_avx512_bf16_vbmi
#define EPMOE_VECTOR_BYTES 64
#define EPMOE_VECTOR_REGISTERS 32
#include "experts/kernels/level.hpp"
#endif
