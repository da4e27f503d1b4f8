#include "epmoe/core/tensor_view.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/expect_error.hpp"
#include "epmoe/core/error.hpp"

namespace epmoe {
namespace {

using test::expect_error;

TEST(TensorView, TypedDoorChecksTheDtype) {
  std::vector<float> data(6, 1.0F);
  const MatrixView view = matrix_view(data.data(), 2, 3);
  EXPECT_EQ((view.as<float, Token, Hidden>()(1, 2)), 1.0F);
  expect_error<InputError>([&] { (void)view.as<bf16, Token, Hidden>(); }, "is f32", "wanted bf16");
  EXPECT_EQ(describe(view), "[2, 3] f32");
}

TEST(TensorView, OverlapIsAboutBytesNotRanges) {
  std::vector<float> data(100);
  const auto at = [&](std::size_t offset, std::int64_t rows, std::int64_t cols, std::int64_t stride) {
    return matrix_view(data.data() + offset, rows, cols, stride);
  };
  EXPECT_TRUE(overlap(at(0, 4, 5, 5), at(19, 1, 5, 5)));
  EXPECT_FALSE(overlap(at(0, 4, 5, 5), at(20, 1, 5, 5)));
  EXPECT_FALSE(overlap(at(0, 8, 5, 10), at(5, 8, 5, 10)));  // two halves of one matrix
  EXPECT_TRUE(overlap(at(0, 8, 6, 10), at(5, 8, 5, 10)));
  EXPECT_TRUE(overlap(at(0, 8, 5, 10), at(5, 8, 6, 10)));    // the last value lies in the next row of the first
  EXPECT_FALSE(overlap(at(0, 8, 5, 10), at(75, 1, 6, 10)));  // … which the first does not have
  EXPECT_TRUE(overlap(at(0, 3, 2, 9), at(4, 10, 1, 7)));     // 18 = 4 + 2 * 7
  EXPECT_FALSE(overlap(at(0, 0, 5, 5), at(0, 4, 5, 5)));
  EXPECT_TRUE(overlap(const_matrix_view(reinterpret_cast<const bf16*>(data.data()) + 3, 1, 1), at(0, 1, 2, 2)));
}

TEST(TensorView, ReadsStridedAndUnalignedRows) {
  std::vector<std::byte> memory(1 + 3 * 9 * 2);
  std::byte* odd = memory.data() + 1;
  for (int i = 0; i < 27; ++i) {
    const bf16 value = to_bf16(static_cast<float>(i));
    std::memcpy(odd + i * 2, &value, 2);
  }
  const ConstMatrixView view{odd, DType::bf16, 3, 7, 9, MemorySpace::host};
  std::vector<float> row(8, -1.0F);
  read_row(view, 2, row.data());
  for (std::size_t c = 0; c < 7; ++c) EXPECT_EQ(row[c], static_cast<float>(18 + c));
  EXPECT_EQ(row[7], -1.0F);
}

TEST(TensorView, WritesRoundedAndOnlyItsColumns) {
  const std::vector<float> in = {1.0F + 0x1p-9F, -3.0F};
  std::vector<bf16> b(6, bf16{0x1234});
  write_row(matrix_view(b.data(), 2, 2, 3), 1, in.data());
  EXPECT_EQ(b[3].bits, 0x3f80U);
  EXPECT_EQ(b[4].bits, 0xc040U);
  for (const std::size_t untouched : {0U, 1U, 2U, 5U}) EXPECT_EQ(b[untouched].bits, 0x1234U);
  std::vector<f16> h(2);
  write_row(matrix_view(h.data(), 1, 2), 0, in.data());
  EXPECT_EQ(h[0].bits, 0x3c02U);
  EXPECT_EQ(h[1].bits, 0xc200U);
}

TEST(TensorView, OtherDtypesAreRefused) {
  std::vector<std::int8_t> data(4);
  float row[4] = {};
  expect_error<InputError>([&] { read_row(matrix_view(data.data(), 1, 4), 0, row); }, "is i8", "f32, f16 or bf16");
  expect_error<InputError>([&] { write_row(matrix_view(data.data(), 1, 4), 0, row); }, "is i8", "f32, f16 or bf16");
}

TEST(TensorView, SlicesKeepTheirStride) {
  std::vector<float> data(12);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const ConstMatrixView part = ConstMatrixView(matrix_view(data.data(), 3, 2, 4)).slice(1, 2);
  float row[2] = {};
  read_row(part, 1, row);
  EXPECT_EQ(row[0], 8.0F);
  EXPECT_EQ(extent_bytes(part), 6 * 4);
  EXPECT_EQ(extent_bytes(part.slice(0, 0)), 0);
}

}  // namespace
}  // namespace epmoe
