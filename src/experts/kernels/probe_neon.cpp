// AArch64; empty elsewhere.
#if defined(__aarch64__)
#define EPMOE_PROBE_NAME probe_neon
#define EPMOE_VECTOR_BYTES 16
#define EPMOE_VECTOR_REGISTERS 32
#include "experts/kernels/probe_loops.hpp"
#endif
