// x86-64 with AVX-512; empty elsewhere.
#if defined(__AVX512BW__)
#define EPMOE_PROBE_NAME probe_avx512
#define EPMOE_VECTOR_BYTES 64
#define EPMOE_VECTOR_REGISTERS 32
#include "experts/kernels/probe_loops.hpp"
#endif
