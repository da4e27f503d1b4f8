// Any CPU: the baseline of the architecture.
#define EPMOE_PROBE_NAME probe_generic
#define EPMOE_VECTOR_BYTES 16
#define EPMOE_VECTOR_REGISTERS 16
#include "experts/kernels/probe_loops.hpp"
