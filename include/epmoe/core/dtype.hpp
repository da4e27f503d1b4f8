#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

/// Element types of tensors in memory, in checkpoints and on the wire, and exact conversions between them.
/// Everything here is local and thread-safe.
namespace epmoe {

enum class DType : std::uint8_t { f32, f16, bf16, i8, u8, i32, i64, f8_e4m3 };

/// Bytes of one element.
constexpr std::int64_t size_bytes(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::i64: return 8;
    case DType::i8:
    case DType::u8:
    case DType::f8_e4m3: return 1;
  }
  return 0;
}

/// "f32", "bf16", … as the command line spells them.
std::string_view name(DType dtype);
std::optional<DType> parse_dtype(std::string_view text);

/// bfloat16: the upper half of an IEEE binary32.
struct bf16 {
  std::uint16_t bits = 0;
  friend bool operator==(bf16, bf16) = default;
};
/// IEEE binary16.
struct f16 {
  std::uint16_t bits = 0;
  friend bool operator==(f16, f16) = default;
};

inline float to_float(float value) {
  return value;
}
inline float to_float(bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}
/// Exact, subnormals, infinities and NaN included. Free of branches, so that loops over it vectorise, and of f32
/// subnormals, so that a host with flush-to-zero gets the same values.
inline float to_float(f16 value) {
  const std::uint32_t sign = (value.bits & 0x8000U) << 16U;
  const std::uint32_t magnitude = (value.bits & 0x7fffU) << 13U;
  const std::uint32_t normal = magnitude + (magnitude >= 0x0f800000U ? 0x70000000U : 0x38000000U);
  // 2^-14 * (1 + m / 1024) - 2^-14 is the subnormal m * 2^-24.
  const auto subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude + 0x38800000U) - 0x1p-14F);
  return std::bit_cast<float>(sign | (magnitude < 0x00800000U ? subnormal : normal));
}

/// Round to nearest, ties to even; a NaN stays a (quiet) NaN.
inline bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U;
  const std::uint32_t nan = (bits >> 16U) | 0x40U;
  return {static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded)};
}
/// Round to nearest, ties to even; overflow gives Inf, a NaN stays a (quiet) NaN.
inline f16 to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const std::uint32_t normal = (magnitude + 0xfffU + ((magnitude >> 13U) & 1U) - 0x38000000U) >> 13U;
  // The last place of 0.5 is 2^-24, the step of binary16 subnormals: the addition rounds.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
  const std::uint32_t nan = 0x7e00U | ((magnitude >> 13U) & 0x3ffU);
  std::uint32_t result = magnitude < 0x38800000U ? subnormal : normal;
  result = magnitude >= 0x47800000U ? 0x7c00U : result;
  result = magnitude > 0x7f800000U ? nan : result;
  return {static_cast<std::uint16_t>(sign | result)};
}

/// Which C++ type stands for which DType.
template <class T>
struct dtype_of;
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<f16> {
  static constexpr DType value = DType::f16;
};
template <>
struct dtype_of<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<std::int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct dtype_of<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct dtype_of<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_of<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <class T>
inline constexpr DType dtype_of_v = dtype_of<T>::value;

}  // namespace epmoe
