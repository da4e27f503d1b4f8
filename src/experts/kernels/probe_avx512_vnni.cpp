// x86-64 with AVX-512 and its int8 dot product; empty elsewhere.
#if defined(__AVX512VNNI__)
#define EPMOE_PROBE_NAME probe_avx512_vnni
#define EPMOE_VECTOR_BYTES 64
#define EPMOE_VECTOR_REGISTERS 32
#include "experts/kernels/probe_loops.hpp"
#endif
