#pragma once
#include <cstddef>

#include "epmoe/experts/expert_slots.hpp"
#include "epmoe/quantize/quantized_matrix.hpp"

namespace epmoe::experts {

/// Writes a part (0 gate, 1 up, 2 down) of a slot whose layout is narrow: values, scales and zero points. Padding
/// decodes to zero.
void pack_narrow(const PackedLayout& layout, int part, const QuantizedMatrix& matrix, std::byte* slot);
/// The part as f32 row-major: value * scale.
void unpack_narrow(const PackedLayout& layout, int part, const std::byte* slot, float* out);

}  // namespace epmoe::experts
