#include <gtest/gtest.h>

#include <cstring>

#include "experts/covering_case.hpp"

/// The comparison of the covering set has teeth: one fault in the packed weights is noticed with every kernel set.
namespace epmoe::test {
namespace {

constexpr CoveringCase kCase{.rows = 9,
                             .hidden = 176,
                             .intermediate = 127,
                             .experts = 8,
                             .activation = Activation::silu,
                             .wire = DispatchType::f32,
                             .weights = DType::f32,
                             .biases = false};

/// The faulty run is compared as the right one is, which is fine.
void expect_noticed(const QuantConfig& quant, const char* what, const CoveringRun::Damage& damage) {
  CoveringRun run(quant, kCase);
  run.check(isas());
  run.damage(damage);
  for (const std::string& isa : isas())
    EXPECT_FALSE(run.errors(isa).fine()) << isa << " " << name(quant) << ": " << what << " went unnoticed";
}

/// Words of output channels `a` and `b` of the same panel change places.
void swap_columns(std::byte* matrix, std::int64_t word_bytes, std::int64_t words, std::int64_t a, std::int64_t b) {
  for (std::int64_t k = 0; k < words; ++k)
    std::swap_ranges(matrix + (k * 64 + a) * word_bytes, matrix + (k * 64 + a + 1) * word_bytes,
                     matrix + (k * 64 + b) * word_bytes);
}

std::int64_t panel_words(const PackedLayout& layout, std::int64_t k) {
  return layout.padded_k(k) * layout.weight_bits() / 8 / layout.word_bytes;
}

TEST(Mutations, TwoColumnsSwapped) {
  for (const QuantConfig& quant : all_formats()) {
    expect_noticed(quant, "two columns of gate swapped", [](std::byte* slot, const PackedLayout& layout) {
      swap_columns(slot + layout.gate_offset(), layout.word_bytes, panel_words(layout, kCase.hidden), 17, 40);
    });
    expect_noticed(quant, "two columns of down swapped", [](std::byte* slot, const PackedLayout& layout) {
      swap_columns(slot + layout.down_offset(), layout.word_bytes, panel_words(layout, kCase.intermediate), 3, 4);
    });
  }
}

TEST(Mutations, ZeroPointsDropped) {
  for (const QuantConfig& quant : all_formats()) {
    if (!quant.weights.zero_point) continue;
    expect_noticed(quant, "zero points dropped", [](std::byte* slot, const PackedLayout& layout) {
      std::memset(slot + layout.zero_point_offset(0), 8,
                  static_cast<std::size_t>(layout.zero_point_offset(3) - layout.zero_point_offset(0)));
    });
    expect_noticed(quant, "zero points of down dropped", [](std::byte* slot, const PackedLayout& layout) {
      std::memset(slot + layout.zero_point_offset(2), 8,
                  static_cast<std::size_t>(layout.zero_point_offset(3) - layout.zero_point_offset(2)));
    });
  }
}

TEST(Mutations, NibblesReversed) {
  for (const QuantConfig& quant : all_formats()) {
    if (!quant.weights.narrow() || PackedLayout{.compute = quant.compute, .weights = quant.weights}.weight_bits() != 4)
      continue;
    expect_noticed(quant, "nibbles reversed", [](std::byte* slot, const PackedLayout& layout) {
      for (std::int64_t i = 0; i < layout.scale_offset(); ++i) slot[i] = (slot[i] << 4) | (slot[i] >> 4);
    });
  }
}

TEST(Mutations, ScalesOfNeighbouringGroupsOrChannelsSwapped) {
  for (const QuantConfig& quant : all_formats()) {
    const WeightFormat& weights = quant.weights;
    if (!weights.scaled() || weights.block_rows != 1) continue;  // blocks of channels share scales here
    expect_noticed(quant, "scales swapped", [](std::byte* slot, const PackedLayout& layout) {
      const std::int64_t bytes = layout.scale_bytes(), groups = layout.groups(kCase.hidden);
      std::byte* scales = slot + layout.narrow_scale_offset(0);
      const std::int64_t step = groups > 1 ? 64 : 1;  // [groups][64 channels]
      for (std::int64_t g = 0; g < std::max<std::int64_t>(1, groups / 2); ++g)
        for (std::int64_t n = 0; n + step <= 64; n += 2 * step)
          std::swap_ranges(scales + (g * 128 + n) * bytes, scales + (g * 128 + n + step) * bytes,
                           scales + (g * 128 + n + step) * bytes);
    });
  }
}

TEST(Mutations, TheSignOfOneWeight) {
  for (const ComputeType compute : {ComputeType::f32, ComputeType::bf16})
    expect_noticed(QuantConfig::for_compute(compute), "one sign", [](std::byte* slot, const PackedLayout& layout) {
      std::byte* word = slot + layout.down_offset() + 5 * layout.word_bytes;  // k = 0 of column 5
      word[layout.element_bytes() - 1] ^= std::byte{0x80};
    });
}

}  // namespace
}  // namespace epmoe::test
