#pragma once
#include <cstddef>
#include <cstdint>

#include "epmoe/experts/experts.hpp"
#include "experts/kernels/kernel_set.hpp"

/// From rows as they arrived, or f32 activations, to rows in the compute type. Shared by the back ends; thread-safe.
namespace epmoe {

/// A row as it arrived; scale: int8 only.
struct RowSource {
  DispatchType type;
  const std::byte* values;
  float scale;
};

struct RowConversion {
  const ExpertsConfig& config;
  const kernels::KernelFunctions& kernels;
  std::uint8_t flip = 0;  ///< int8: XORed into every byte; 0x80 stores value + 128

  /// Bytes of `n` values in the compute type.
  [[nodiscard]] std::int64_t bytes(std::int64_t n) const;
  /// Whether a row of a batch holds the compute type's values as they are wanted.
  [[nodiscard]] bool unchanged(DispatchType type) const;
  /// One row of `hidden` values; returns its scale (int8 compute, else 1). int8 rows that meet int8 compute keep their
  /// values. `scratch` is [hidden], used by int8 compute only.
  float convert(const RowSource& source, std::byte* out, float* scratch) const;
  /// n values to int8 with the static scale or their own, as quantize/int8.hpp does it; NaN is the scale of a row that
  /// holds NaN or Inf.
  float quantize(const ScaleConfig& scale, const float* in, std::int64_t n, std::byte* out) const;
};
kernels::ActivationKind kind_of(Activation activation);

}  // namespace epmoe
