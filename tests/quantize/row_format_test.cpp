#include "epmoe/quantize/row_format.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/expect_error.hpp"
#include "epmoe/core/error.hpp"
#include "epmoe/core/random.hpp"
#include "epmoe/quantize/int8.hpp"

namespace epmoe {
namespace {

using test::expect_error;
constexpr std::byte kPoison{0xa5};
constexpr std::int64_t kHiddens[] = {1, 7, 100, 1024, 2880};
constexpr DispatchType kTypes[] = {DispatchType::f32, DispatchType::f16, DispatchType::bf16, DispatchType::int8};

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// [rows, hidden] of a dtype with three poisoned columns after each row.
struct Tensor {
  Tensor(DType dtype, std::int64_t rows, std::int64_t hidden, std::uint64_t seed)
      : bytes(at(rows * (hidden + 3) * size_bytes(dtype)), kPoison),
        view{bytes.data(), dtype, rows, hidden, hidden + 3, MemorySpace::host} {
    std::vector<float> row(at(hidden));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < hidden; ++c)
        row[at(c)] = random_normal(seed, static_cast<std::uint64_t>(r), static_cast<std::uint64_t>(c));
      write_row(view, r, row.data());
    }
  }
  [[nodiscard]] std::vector<float> row(std::int64_t r) const {
    std::vector<float> values(at(view.cols));
    read_row(view, r, values.data());
    return values;
  }
  std::vector<std::byte> bytes;
  MatrixView view;
};

/// What a row must decode to, value by value from the rules in the header.
std::vector<float> expected(DispatchType type, std::vector<float> x, float factor) {
  if (factor != 1.0F)
    for (float& value : x) value *= factor;
  if (type == DispatchType::f16)
    for (float& value : x) value = to_float(to_f16(value));
  if (type == DispatchType::bf16)
    for (float& value : x) value = to_float(to_bf16(value));
  if (type == DispatchType::int8) {
    std::vector<std::int8_t> q(x.size());
    const float scale = quantize_int8_token(x.data(), static_cast<std::int64_t>(x.size()), q.data());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(q[i]) * scale;
  }
  return x;
}

TEST(DispatchRowFormat, LayoutIsAsDocumented) {
  for (const DispatchType type : kTypes)
    for (const std::int64_t hidden : kHiddens)
      for (const std::int64_t top_k : {1, 2, 8, 32}) {
        const DispatchRowFormat format(type, hidden, top_k);
        const std::int64_t value_bytes = type == DispatchType::int8 ? 1 : type == DispatchType::f32 ? 4 : 2;
        EXPECT_GE(format.entries_offset_bytes(), hidden * value_bytes + (type == DispatchType::int8 ? 4 : 0));
        EXPECT_EQ(format.entries_offset_bytes() % 4, 0);
        EXPECT_EQ(format.row_bytes() % 64, 0);
        EXPECT_EQ(format.row_blocks() * 64, format.row_bytes());
        EXPECT_GE(format.row_bytes(), format.entries_offset_bytes() + 12 * top_k);
        EXPECT_LT(format.row_bytes(), hidden * value_bytes + 4 + 3 + 12 * top_k + 64);
        if (type == DispatchType::int8) {
          EXPECT_GE(format.scale_offset_bytes(), hidden);
          EXPECT_EQ(format.scale_offset_bytes() % 4, 0);
          EXPECT_EQ(format.scale_offset_bytes() + 4, format.entries_offset_bytes());
        }
      }
  EXPECT_EQ(DispatchRowFormat(DispatchType::int8, 2048, 8).row_bytes(), 2176);  // 2048 + 4 + 96, in whole blocks
}

TEST(DispatchRowFormat, RoundTripOfEveryTypeFromEveryInput) {
  for (const DispatchType type : kTypes)
    for (const DType input : {DType::f32, DType::f16, DType::bf16})
      for (const std::int64_t hidden : kHiddens)
        for (const float factor : {1.0F, 0.3F}) {
          const Tensor x(input, 3, hidden, 42);
          const auto before = x.bytes;
          const DispatchRowFormat format(type, hidden, 3);
          std::vector<std::byte> row(at(format.row_bytes()) + 1, kPoison);
          std::vector<float> decoded(at(hidden) + 1, 7.0F);
          for (std::int64_t token = 0; token < 3; ++token) {
            format.encode(x.view, token, factor, row.data());
            format.decode(row.data(), decoded.data());
            const auto wanted = expected(type, x.row(token), factor);
            EXPECT_EQ(std::vector<float>(decoded.begin(), decoded.end() - 1), wanted)
                << name(type) << " from " << name(input) << ", hidden " << hidden << ", factor " << factor;
          }
          EXPECT_EQ(decoded.back(), 7.0F);
          EXPECT_EQ(row.back(), kPoison);
          EXPECT_EQ(x.bytes, before);
        }
}

TEST(DispatchRowFormat, PaddingIsZeroedAndEntriesAreLeftAlone) {
  for (const DispatchType type : kTypes)
    for (const std::int64_t hidden : kHiddens) {
      const Tensor x(DType::f32, 1, hidden, 1);
      const DispatchRowFormat format(type, hidden, 3);
      std::vector<std::byte> row(at(format.row_bytes()), kPoison);
      format.encode(x.view, 0, 1.0F, row.data());
      const std::int64_t values_end = hidden * (type == DispatchType::int8 ? 1 : type == DispatchType::f32 ? 4 : 2);
      const std::int64_t gap_end =
          type == DispatchType::int8 ? format.scale_offset_bytes() : format.entries_offset_bytes();
      const std::int64_t entries_end = format.entries_offset_bytes() + 3 * 12;
      for (std::int64_t i = values_end; i < gap_end; ++i) EXPECT_EQ(row[at(i)], std::byte{0}) << i;
      for (std::int64_t i = format.entries_offset_bytes(); i < entries_end; ++i) EXPECT_EQ(row[at(i)], kPoison) << i;
      for (std::int64_t i = entries_end; i < format.row_bytes(); ++i) EXPECT_EQ(row[at(i)], std::byte{0}) << i;
    }
}

TEST(DispatchRowFormat, SameFormatIsCopiedBitForBit) {
  // NaN payloads and signed zeros show that nothing was converted on the way.
  std::vector<std::uint16_t> bits = {0x7c01, 0x8000, 0xfe12, 0x0001, 0x7f81, 0xff80, 0x3c00};
  for (const auto& [dtype, type] : {std::pair{DType::f16, DispatchType::f16}, {DType::bf16, DispatchType::bf16}}) {
    const DispatchRowFormat format(type, 7, 1);
    std::vector<std::byte> row(at(format.row_bytes()));
    format.encode({bits.data(), dtype, 1, 7, 7, MemorySpace::host}, 0, 1.0F, row.data());
    EXPECT_EQ(std::memcmp(row.data(), bits.data(), 14), 0);
  }
}

TEST(DispatchRowFormat, ZeroRowsDecodeToZero) {
  for (const DispatchType type : kTypes)
    for (const std::int64_t hidden : kHiddens) {
      const std::vector<float> zero(at(hidden), 0.0F);
      const DispatchRowFormat format(type, hidden, 1);
      std::vector<std::byte> row(at(format.row_bytes()), kPoison);
      std::vector<float> decoded(at(hidden), 7.0F);
      format.encode(const_matrix_view(zero.data(), 1, hidden), 0, 1.0F, row.data());
      format.decode(row.data(), decoded.data());
      EXPECT_EQ(decoded, zero);
    }
}

TEST(DispatchRowFormat, BadValuesStayInTheirRow) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const DispatchType type : kTypes)
      for (const std::int64_t hidden : kHiddens) {
        Tensor x(DType::f32, 3, hidden, 9);
        const std::int64_t column = hidden - 1;
        x.view.as<float, Token, Hidden>()(1, column) = bad;
        const DispatchRowFormat format(type, hidden, 2);
        std::vector<std::byte> row(at(format.row_bytes()), kPoison);
        std::vector<float> decoded(at(hidden));
        for (std::int64_t token = 0; token < 3; ++token) {
          format.encode(x.view, token, 1.0F, row.data());
          format.decode(row.data(), decoded.data());
          const auto wanted = expected(type, x.row(token), 1.0F);
          for (std::int64_t c = 0; c < hidden; ++c) {
            if (token == 1 && type == DispatchType::int8)
              EXPECT_TRUE(std::isnan(decoded[at(c)]));
            else if (token == 1 && c == column)
              EXPECT_FALSE(std::isfinite(decoded[at(c)]));
            else
              EXPECT_EQ(decoded[at(c)], wanted[at(c)]);
          }
        }
      }
}

TEST(DispatchRowFormat, DecodeHiddenTakesTheScaleFromElsewhere) {
  const std::vector<std::int8_t> q = {-127, -1, 0, 1, 127};
  std::vector<float> out(5);
  decode_hidden(DispatchType::int8, reinterpret_cast<const std::byte*>(q.data()), 0.5F, 5, out.data());
  EXPECT_EQ(out, (std::vector<float>{-63.5F, -0.5F, 0.0F, 0.5F, 63.5F}));
}

TEST(DispatchRowFormat, WrongUseIsAnError) {
  expect_error<ConfigError>([] { DispatchRowFormat(DispatchType::f32, 0, 1); }, "hidden is 0");
  expect_error<ConfigError>([] { DispatchRowFormat(DispatchType::f32, 8, 65536); }, "top_k is 65536");
  expect_error<ConfigError>([] { CombineRowFormat(CombineType::f32, -1); }, "hidden is -1");
  const DispatchRowFormat format(DispatchType::f32, 8, 1);
  std::vector<std::byte> row(at(format.row_bytes()));
  const Tensor x(DType::f32, 1, 9, 1);
  expect_error<InputError>([&] { format.encode(x.view, 0, 1.0F, row.data()); }, "[1, 9] f32", "8 columns");
  std::vector<std::int32_t> ids(8);
  expect_error<InputError>([&] { format.encode(const_matrix_view(ids.data(), 1, 8), 0, 1.0F, row.data()); }, "is i32");
}

TEST(CombineRowFormat, RoundTripAddsAndPads) {
  for (const CombineType type : {CombineType::f32, CombineType::bf16})
    for (const std::int64_t hidden : kHiddens) {
      const CombineRowFormat format(type, hidden);
      const std::int64_t values_end = hidden * (type == CombineType::f32 ? 4 : 2);
      EXPECT_EQ(format.row_bytes(), (values_end + 63) / 64 * 64);
      EXPECT_EQ(format.row_blocks() * 64, format.row_bytes());
      const auto x = Tensor(DType::f32, 1, hidden, 3).row(0);
      std::vector<std::byte> row(at(format.row_bytes()), kPoison);
      format.encode(x.data(), row.data());
      for (std::int64_t i = values_end; i < format.row_bytes(); ++i) EXPECT_EQ(row[at(i)], std::byte{0});
      std::vector<float> sum(at(hidden) + 1, 100.0F);
      format.decode_add(row.data(), sum.data());
      for (std::int64_t c = 0; c < hidden; ++c) {
        const float value = type == CombineType::f32 ? x[at(c)] : to_float(to_bf16(x[at(c)]));
        EXPECT_EQ(sum[at(c)], 100.0F + value);
      }
      EXPECT_EQ(sum.back(), 100.0F);
    }
}

}  // namespace
}  // namespace epmoe
