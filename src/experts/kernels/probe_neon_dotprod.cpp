// AArch64 with its int8 dot product; empty elsewhere.
#if defined(__ARM_FEATURE_DOTPROD)
#define EPMOE_PROBE_NAME probe_neon_dotprod
#define EPMOE_VECTOR_BYTES 16
#define EPMOE_VECTOR_REGISTERS 32
#include "experts/kernels/probe_loops.hpp"
#endif
