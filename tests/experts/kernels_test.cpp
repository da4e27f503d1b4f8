#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "epmoe/core/dtype.hpp"
#include "epmoe/core/random.hpp"
#include "experts/expert_case.hpp"
#include "experts/kernels/kernel_set.hpp"

/// Kernels against scalar loops that spell out the promised order of operations: equal bits, not a tolerance.
namespace epmoe::test {
namespace {

using kernels::KernelSet;
using kernels::kPanelColumns;

constexpr std::int64_t kWordCounts[] = {16, 48, 256, 272, 800};  // below, at and past a block of K
constexpr std::int64_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 13};

struct Operands {
  Operands(ComputeType type, std::int64_t m, std::int64_t words_of_k)
      : compute(type),
        rows(m),
        words(words_of_k),
        v(type == ComputeType::f32    ? 1
          : type == ComputeType::bf16 ? 2
                                      : 4),
        a(static_cast<std::size_t>(m * words_of_k)),
        w(static_cast<std::size_t>(words_of_k * kPanelColumns)) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = word(1, i);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = word(2, i);
    for (std::int64_t i = 0; i < rows; ++i)
      row_scale.push_back(0.001F + random_uniform(3, 0, static_cast<std::uint64_t>(i)));
    for (std::uint64_t n = 0; n < 64; ++n) channel_scale.push_back(0.001F + random_uniform(4, 0, n));
    for (std::uint64_t n = 0; n < 64; ++n) bias.push_back(random_normal(5, 0, n));
  }
  [[nodiscard]] std::uint32_t word(std::uint64_t seed, std::uint64_t i) const {
    const std::uint64_t bits = random_bits(seed, 9, i);
    std::uint32_t out = 0;
    if (compute == ComputeType::f32) {
      const float value = random_normal(seed, 8, i);
      std::memcpy(&out, &value, 4);
    } else if (compute == ComputeType::bf16) {
      out = to_bf16(random_normal(seed, 8, 2 * i)).bits |
            static_cast<std::uint32_t>(to_bf16(random_normal(seed, 8, 2 * i + 1)).bits) << 16U;
    } else {
      for (unsigned b = 0; b < 4; ++b) {  // the extremes often: an overflow of 16 bits would show; rows may hold -128
        const auto pick = static_cast<std::int32_t>((bits >> (8 * b)) & 0xffU) - 128;
        const std::int32_t q =
            (bits >> (40 + b)) & 1U ? (pick < 0 ? -127 : 127) : (seed == 1 ? pick : std::max(pick, -127));
        out |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(q)) << (8 * b);
      }
    }
    return out;
  }
  [[nodiscard]] float value(std::uint32_t bits, std::int64_t j) const {
    float out;
    if (compute == ComputeType::f32)
      std::memcpy(&out, &bits, 4);
    else
      out = to_float(bf16{static_cast<std::uint16_t>(bits >> (16 * static_cast<unsigned>(j)))});
    return out;
  }
  /// The scalar truth, and its bits.
  [[nodiscard]] float expected(std::int64_t r, std::int64_t n, bool with_bias) const {
    float sum = 0.0F;
    std::int64_t integer = 0;
    for (std::int64_t k = 0; k < words; ++k) {
      const std::uint32_t aw = a[static_cast<std::size_t>(r * words + k)],
                          ww = w[static_cast<std::size_t>(k * kPanelColumns + n)];
      for (std::int64_t j = 0; j < v; ++j) {
        if (compute == ComputeType::int8) {
          const auto shift = 8 * static_cast<unsigned>(j);
          integer +=
              static_cast<std::int64_t>(static_cast<std::int8_t>(aw >> shift)) * static_cast<std::int8_t>(ww >> shift);
        } else {
          const float product = value(aw, j) * value(ww, j);
          sum += product;
        }
      }
    }
    const auto column = static_cast<std::size_t>(n);
    if (compute == ComputeType::int8)
      sum = static_cast<float>(integer) * (row_scale[static_cast<std::size_t>(r)] * channel_scale[column]);
    return with_bias ? sum + bias[column] : sum;
  }
  ComputeType compute;
  std::int64_t rows, words, v;
  std::vector<std::uint32_t> a, w;
  std::vector<float> row_scale, channel_scale, bias;
};

TEST(Kernels, SumsHaveTheBitsOfAScalarLoop) {
  for (const ComputeType compute : kComputeTypes)
    for (const std::int64_t words : kWordCounts)
      for (const std::int64_t rows : kRowCounts) {
        const Operands operands(compute, rows, words);
        const bool with_bias = rows % 2 == 0;
        std::vector<float> wanted;
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t n = 0; n < kPanelColumns; ++n) wanted.push_back(operands.expected(r, n, with_bias));
        for (const std::string& isa : isas()) {
          const kernels::KernelFunctions& f = *kernels::find_kernel_set(isa.c_str())->functions;
          constexpr std::int64_t kStride = kPanelColumns + 16;
          std::vector<float> c(static_cast<std::size_t>(rows * kStride), std::numeric_limits<float>::quiet_NaN());
          kernels::PanelGemm g;
          g.a = operands.a.data();
          g.a_stride_bytes = words * 4;
          g.w = operands.w.data();
          g.c = c.data();
          g.c_stride = kStride;
          g.rows = rows;
          g.words = words;
          g.row_scale = operands.row_scale.data();
          g.channel_scale = operands.channel_scale.data();
          g.bias = with_bias ? operands.bias.data() : nullptr;
          (compute == ComputeType::f32 ? f.gemm_f32 : compute == ComputeType::bf16 ? f.gemm_bf16 : f.gemm_int8)(g);
          std::int64_t different = 0;
          for (std::int64_t r = 0; r < rows; ++r)
            different += std::memcmp(c.data() + r * kStride, wanted.data() + r * kPanelColumns, kPanelColumns * 4) != 0;
          EXPECT_EQ(different, 0) << isa << " " << name(compute) << " rows " << rows << " words " << words;
        }
      }
}

TEST(Kernels, NoInt8SumOverflowsAtTheLongestK) {
  constexpr std::int64_t kWords = 133144 / 4;  // 127 * 127 * 133144 is just below 2^31
  std::vector<std::uint32_t> a(kWords, 0x7f7f7f7fU), w(kWords * kPanelColumns, 0x7f7f7f7fU);
  const std::vector<float> scale(kPanelColumns, 1.0F);
  for (const std::string& isa : isas()) {
    std::vector<float> c(kPanelColumns);
    kernels::PanelGemm g;
    g.a = a.data();
    g.a_stride_bytes = kWords * 4;
    g.w = w.data();
    g.c = c.data();
    g.c_stride = kPanelColumns;
    g.rows = 1;
    g.words = kWords;
    g.row_scale = g.channel_scale = scale.data();
    kernels::find_kernel_set(isa.c_str())->functions->gemm_int8(g);
    EXPECT_EQ(c[0], 127.0F * 127.0F * 133144.0F) << isa;
    EXPECT_EQ(c[63], c[0]) << isa;
  }
}

TEST(Kernels, TableIsBestFirstAndEndsWithTheBaseline) {
  const kernels::KernelTable table = kernels::kernel_table();
  EXPECT_EQ(std::string(table.sets[table.count - 1].name), "generic");
  EXPECT_EQ(std::string(kernels::find_kernel_set("")->name), isas().front());
  EXPECT_EQ(kernels::find_kernel_set("no such ISA"), nullptr);
}

}  // namespace
}  // namespace epmoe::test
