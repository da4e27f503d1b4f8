#pragma once
#include <cstdint>

/// Counter-based random numbers: a value depends on (seed, row, column) only, so any split over ranks gives the same
/// tensor. Local, thread-safe.
namespace epmoe {

/// 64 random bits (SplitMix64 finaliser over the mixed counters).
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t row, std::uint64_t column);
/// Uniform in [0, 1).
float random_uniform(std::uint64_t seed, std::uint64_t row, std::uint64_t column);
/// N(0, 1) by Box-Muller in f64, rounded to f32 once.
float random_normal(std::uint64_t seed, std::uint64_t row, std::uint64_t column);

}  // namespace epmoe
