// x86-64 with AVX2 and its int8 dot product; empty elsewhere.
#if defined(__AVXVNNI__)
#define EPMOE_PROBE_NAME probe_avx_vnni
#define EPMOE_VECTOR_BYTES 32
#define EPMOE_VECTOR_REGISTERS 16
#include "experts/kernels/probe_loops.hpp"
#endif
