#pragma once
#include <cstdint>

#include "epmoe/core/tensor_view.hpp"

/// int8, symmetric, W8A8. Sources: the per-token rule of vLLM's int8 kernels with eps 1e-10 and round to nearest even;
/// per-channel weights with eps 1e-12. Local, thread-safe.
namespace epmoe {

/// q[n] = clamp(nearest_even(x / s), -127, 127), returns s = max(amax, 1e-10) / 127. A NaN or Inf in x: all q zero
/// and s NaN.
float quantize_int8_token(const float* x, std::int64_t n, std::int8_t* q);
/// With a given (static, per-tensor) scale; values beyond saturate. A NaN becomes 0; `*finite` (may be null) tells
/// whether all of x was finite.
void quantize_int8_static(const float* x, std::int64_t n, float scale, std::int8_t* q, bool* finite);
/// One output channel of a weight: s = max(amax, 1e-12) / 127; NaN and Inf as in quantize_int8_token.
float quantize_int8_channel(const float* w, std::int64_t n, std::int8_t* q);

}  // namespace epmoe
