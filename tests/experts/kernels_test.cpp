#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "epmoe/core/dtype.hpp"
#include "epmoe/core/random.hpp"
#include "experts/expert_case.hpp"
#include "experts/kernels/kernel_set.hpp"

/// Kernels against scalar loops that spell out the promised order of operations: equal bits, not a tolerance. Sets
/// whose CPU sums several products at once have their order fixed by the CPU: they are held to a tight tolerance, and
/// to the same bits whatever the number of rows.
namespace epmoe::test {
namespace {

using kernels::KernelSet;
using kernels::kPanelColumns;

constexpr std::int64_t kWordCounts[] = {16, 48, 256, 272, 800};  // below, at and past a block of K
constexpr std::int64_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 13};
constexpr std::int64_t kManyRows[] = {25, 49};  // past groups of rows, and odd

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
  /// The scalar truth, and its bits; `magnitude` becomes the sum of the products' magnitudes.
  [[nodiscard]] float expected(std::int64_t r, std::int64_t n, bool with_bias, bool fused,
                               double* magnitude = nullptr) const {
    float sum = 0.0F;
    std::int64_t integer = 0;
    double magnitudes = 0;
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
          sum = fused ? std::fma(value(aw, j), value(ww, j), sum) : sum + product;
          magnitudes += std::fabs(product);
        }
      }
    }
    if (magnitude != nullptr) *magnitude = magnitudes;
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

/// A set's kernel for a format, fed as the set wants: words of 4 or 8 bytes, rows signed or unsigned.
class Kernel {
 public:
  Kernel(const std::string& isa, ComputeType type)
      : compute_(type), f_(*kernels::find_kernel_set(isa.c_str())->functions) {}
  [[nodiscard]] kernels::Rounding rounding() const {
    return compute_ == ComputeType::f32    ? f_.f32_rounding
           : compute_ == ComputeType::bf16 ? f_.bf16_rounding
                                           : kernels::Rounding::separate;
  }
  [[nodiscard]] std::int64_t pieces() const {
    return compute_ == ComputeType::bf16   ? f_.bf16_word_bytes / 4
           : compute_ == ComputeType::int8 ? f_.int8_word_bytes / 4
                                           : 1;
  }
  /// C [rows][kStride] of the first `rows` rows; `words` counts 4-byte words and is a multiple of 16.
  [[nodiscard]] std::vector<float> run(const Operands& o, std::int64_t rows, bool with_bias) const {
    std::vector<std::uint32_t> a = o.a, w(o.w.size());
    if (compute_ == ComputeType::int8 && f_.unsigned_int8_rows)
      for (std::uint32_t& word : a) word ^= 0x80808080U;
    const std::int64_t p = pieces();
    for (std::int64_t k = 0; k < o.words; ++k)
      for (std::int64_t n = 0; n < kPanelColumns; ++n)
        w[static_cast<std::size_t>(k / p * p * kPanelColumns + n * p + k % p)] =
            o.w[static_cast<std::size_t>(k * kPanelColumns + n)];
    std::vector<std::int32_t> column_sum(kPanelColumns);
    for (std::int64_t k = 0; k < o.words && compute_ == ComputeType::int8; ++k)
      for (std::int64_t n = 0; n < kPanelColumns; ++n)
        for (unsigned byte = 0; byte < 4; ++byte)
          column_sum[static_cast<std::size_t>(n)] +=
              static_cast<std::int8_t>(o.w[static_cast<std::size_t>(k * kPanelColumns + n)] >> (8 * byte));
    std::vector<float> c(static_cast<std::size_t>(rows * kStride), std::numeric_limits<float>::quiet_NaN());
    kernels::PanelGemm g;
    std::vector<const void*> row_pointers;
    for (std::int64_t r = 0; r < rows; ++r) row_pointers.push_back(a.data() + r * o.words);
    g.a = row_pointers.data();
    g.w = w.data();
    g.next = w.data();
    g.c = c.data();
    g.c_stride = kStride;
    g.rows = rows;
    g.words = o.words / p;
    g.row_scale = o.row_scale.data();
    g.channel_scale = o.channel_scale.data();
    g.column_sum = column_sum.data();
    g.bias = with_bias ? o.bias.data() : nullptr;
    (compute_ == ComputeType::f32 ? f_.gemm_f32 : compute_ == ComputeType::bf16 ? f_.gemm_bf16 : f_.gemm_int8)(g);
    return c;
  }
  static constexpr std::int64_t kStride = kPanelColumns + 16;

 private:
  ComputeType compute_;
  const kernels::KernelFunctions& f_;
};

TEST(Kernels, SumsHaveTheBitsOfAScalarLoop) {
  std::int64_t checked = 0;
  for (const ComputeType compute : kComputeTypes)
    for (const std::int64_t words : kWordCounts)
      for (const std::int64_t rows : kRowCounts) {
        const Operands operands(compute, rows, words);
        const bool with_bias = rows % 2 == 0;
        std::vector<float> separate, fused;
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t n = 0; n < kPanelColumns; ++n) {
            separate.push_back(operands.expected(r, n, with_bias, false));
            fused.push_back(operands.expected(r, n, with_bias, true));
          }
        for (const std::string& isa : isas()) {
          const Kernel kernel(isa, compute);
          if (kernel.rounding() == kernels::Rounding::pairs) continue;
          const std::vector<float>& wanted = kernel.rounding() == kernels::Rounding::fused ? fused : separate;
          const std::vector<float> c = kernel.run(operands, rows, with_bias);
          std::int64_t different = 0;
          for (std::int64_t r = 0; r < rows; ++r)
            different +=
                std::memcmp(c.data() + r * Kernel::kStride, wanted.data() + r * kPanelColumns, kPanelColumns * 4) != 0;
          EXPECT_EQ(different, 0) << isa << " " << name(compute) << " rows " << rows << " words " << words;
          ++checked;
        }
      }
  EXPECT_GT(checked, 0);
}

TEST(Kernels, ManyRowsHaveTheBitsOfFewRows) {
  constexpr std::int64_t kWords = 272;
  for (const ComputeType compute : kComputeTypes)
    for (const std::string& isa : isas()) {
      const Kernel kernel(isa, compute);
      for (const std::int64_t rows : kManyRows) {
        const Operands operands(compute, rows, kWords);
        const std::vector<float> all = kernel.run(operands, rows, true);
        Operands few = operands;  // the last three rows alone
        few.a.erase(few.a.begin(), few.a.begin() + (rows - 3) * kWords);
        few.row_scale.erase(few.row_scale.begin(), few.row_scale.begin() + (rows - 3));
        const std::vector<float> last = kernel.run(few, 3, true);
        for (std::int64_t r = 0; r < 3; ++r)
          EXPECT_EQ(std::memcmp(last.data() + r * Kernel::kStride, all.data() + (rows - 3 + r) * Kernel::kStride,
                                kPanelColumns * 4),
                    0)
              << isa << " " << name(compute) << " row " << r << " of the last 3 of " << rows;
      }
    }
}

TEST(Kernels, SumsOfDotProductInstructionsAreCloseAndDoNotDependOnTheNumberOfRows) {
  constexpr std::int64_t kRows = 13;
  for (const std::string& isa : isas()) {
    const Kernel kernel(isa, ComputeType::bf16);
    if (kernel.rounding() != kernels::Rounding::pairs) continue;
    for (const std::int64_t words : kWordCounts) {
      const Operands operands(ComputeType::bf16, kRows, words);
      const std::vector<float> all = kernel.run(operands, kRows, true);
      for (std::int64_t r = 0; r < kRows; ++r)
        for (std::int64_t n = 0; n < kPanelColumns; ++n) {
          double magnitude = 0;
          const double wanted = operands.expected(r, n, true, false, &magnitude);
          EXPECT_NEAR(all[static_cast<std::size_t>(r * Kernel::kStride + n)], wanted, 3e-6 * magnitude)
              << isa << " words " << words << " row " << r << " column " << n;
        }
      for (const std::int64_t rows : kRowCounts) {
        const std::vector<float> some = kernel.run(operands, rows, true);
        for (std::int64_t r = 0; r < rows; ++r)
          EXPECT_EQ(std::memcmp(some.data() + r * Kernel::kStride, all.data() + r * Kernel::kStride, kPanelColumns * 4),
                    0)
              << isa << " words " << words << " row " << r << " of " << rows;
      }
    }
  }
}

TEST(Kernels, NoInt8SumOverflowsAtTheLongestK) {
  constexpr std::int64_t kWords = 66304 / 4;  // 255 * 127 * 66304 is just below 2^31: rows may be stored unsigned
  for (const std::int32_t row : {127, -127}) {
    Operands operands(ComputeType::int8, 1, kWords);
    const auto byte = static_cast<std::uint32_t>(static_cast<std::uint8_t>(row));
    std::fill(operands.a.begin(), operands.a.end(), byte * 0x01010101U);
    std::fill(operands.w.begin(), operands.w.end(), 0x7f7f7f7fU);
    operands.row_scale.assign(1, 1.0F);
    operands.channel_scale.assign(kPanelColumns, 1.0F);
    for (const std::string& isa : isas()) {
      const std::vector<float> c = Kernel(isa, ComputeType::int8).run(operands, 1, false);
      EXPECT_EQ(c[0], static_cast<float>(row) * 127.0F * 66304.0F) << isa;
      EXPECT_EQ(c[63], c[0]) << isa;
    }
  }
}

/// EPMOE_EXPECTED_KERNEL_SETS: the sets that this CPU should have, best first, so that none is missing unnoticed.
TEST(Kernels, SetsOfThisCpuAreThoseExpected) {
  std::string found;
  for (const std::string& isa : isas()) found += (found.empty() ? "" : " ") + isa;
  std::printf("kernel sets here: %s\n", found.c_str());
  const char* expected = std::getenv("EPMOE_EXPECTED_KERNEL_SETS");
  if (expected == nullptr) GTEST_SKIP() << "EPMOE_EXPECTED_KERNEL_SETS is not set";
  EXPECT_EQ(found, expected);
}

TEST(Kernels, TableIsBestFirstAndEndsWithTheBaseline) {
  const kernels::KernelTable table = kernels::kernel_table();
  EXPECT_EQ(std::string(table.sets[table.count - 1].name), "generic");
  EXPECT_EQ(std::string(kernels::find_kernel_set("")->name), isas().front());
  EXPECT_EQ(kernels::find_kernel_set("no such ISA"), nullptr);
}

}  // namespace
}  // namespace epmoe::test
