// x86-64 with AVX2 and FMA; empty elsewhere.
#if defined(__AVX2__)
#define EPMOE_PROBE_NAME probe_avx2
#define EPMOE_VECTOR_BYTES 32
#define EPMOE_VECTOR_REGISTERS 16
#include "experts/kernels/probe_loops.hpp"
#endif
