#include "epmoe/core/random.hpp"

#include <bit>
#include <cmath>

namespace epmoe {
namespace {

std::uint64_t finalise(std::uint64_t z) {
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31U);
}

constexpr double unit(std::uint64_t bits) {
  return static_cast<double>(bits >> 11U) * 0x1p-53;
}

// libm's log and cos differ in the last place between CPUs; these use only operations that IEEE 754 fixes.

/// Natural logarithm of a normal x > 0.
double portable_log(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto exponent = static_cast<std::int64_t>(bits >> 52U) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL);
  if (mantissa > 1.4142135623730951) {
    mantissa *= 0.5;
    ++exponent;
  }
  const double s = (mantissa - 1.0) / (mantissa + 1.0), s2 = s * s;  // log m = 2 atanh s, |s| <= 0.172
  double sum = 0.0;
  for (int n = 23; n >= 1; n -= 2) sum = sum * s2 + 1.0 / n;
  return static_cast<double>(exponent) * 0.6931471805599453 + 2.0 * s * sum;
}

/// cos(2 pi u) for u in [0, 1).
double portable_cos_turn(double u) {
  const double quarter = std::floor(4.0 * u + 0.5);
  const double a = (4.0 * u - quarter) * 1.5707963267948966, a2 = a * a;  // |a| <= pi / 4
  const auto quadrant = static_cast<int>(quarter) & 3;
  const bool sine = (quadrant & 1) != 0;
  double sum = 1.0;
  for (int n = sine ? 19 : 18; n > 1; n -= 2) sum = 1.0 - a2 / (n * (n - 1.0)) * sum;
  const double value = sine ? a * sum : sum;
  return quadrant == 1 || quadrant == 2 ? -value : value;
}

}  // namespace

std::uint64_t random_bits(std::uint64_t seed, std::uint64_t row, std::uint64_t column) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  std::uint64_t state = finalise(seed + kGolden);
  state = finalise((state ^ row) + kGolden);
  return finalise((state ^ column) + kGolden);
}

float random_uniform(std::uint64_t seed, std::uint64_t row, std::uint64_t column) {
  return static_cast<float>(random_bits(seed, row, column) >> 40U) * 0x1p-24F;
}

float random_normal(std::uint64_t seed, std::uint64_t row, std::uint64_t column) {
  const std::uint64_t bits = random_bits(seed, row, column);
  const double radius = std::sqrt(-2.0 * portable_log(1.0 - unit(bits)));
  return static_cast<float>(radius * portable_cos_turn(unit(finalise(bits + 0x9e3779b97f4a7c15ULL))));
}

}  // namespace epmoe
