#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "epmoe/core/error.hpp"
#include "epmoe/quantize/int8.hpp"
#include "experts/expert_case.hpp"

namespace epmoe::test {
namespace {

using ::testing::HasSubstr;

constexpr Shape kShapes[] = {{1, 1}, {7, 64}, {64, 7}, {65, 63}, {100, 176}, {256, 128}};

PackedLayout layout_of(ComputeType compute, Shape shape, bool biases) {
  PackedLayout layout;
  layout.compute = compute;
  layout.hidden = shape.hidden;
  layout.intermediate = shape.intermediate;
  layout.biases = biases;
  return layout;
}

/// What packing should leave of a row.
std::vector<float> rounded_row(ConstMatrixView view, std::int64_t row, ComputeType compute) {
  std::vector<float> values(static_cast<std::size_t>(view.cols));
  read_row(view, row, values.data());
  if (compute == ComputeType::bf16)
    for (float& v : values) v = to_float(to_bf16(v));
  if (compute == ComputeType::int8) {
    std::vector<std::int8_t> q(values.size());
    const float scale = quantize_int8_channel(values.data(), view.cols, q.data());
    for (std::size_t i = 0; i < q.size(); ++i) values[i] = static_cast<float>(q[i]) * scale;
  }
  return values;
}

void expect_matrix(ConstMatrixView source, const std::vector<float>& found, ComputeType compute, const char* what) {
  for (std::int64_t r = 0; r < source.rows; ++r) {
    const auto wanted = rounded_row(source, r, compute);
    ASSERT_EQ(std::memcmp(wanted.data(), found.data() + r * source.cols, wanted.size() * 4), 0) << what << " row " << r;
  }
}

TEST(ExpertSlots, PackThenUnpackGivesTheRoundedWeights) {
  for (const Shape shape : kShapes)
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      for (const ComputeType compute : kComputeTypes)
        for (const std::int64_t shift : {0, 1, 3}) {  // mapped files align nothing
          const RandomExpert expert(5, shape, dtype, true, shift);
          ExpertSlots slots(layout_of(compute, shape, true), 2);
          slots.pack(1, expert.weights());
          std::vector<float> out(static_cast<std::size_t>(shape.hidden * shape.intermediate));
          slots.unpack_gate(1, out.data());
          expect_matrix(expert.gate.view(), out, compute, "gate");
          slots.unpack_up(1, out.data());
          expect_matrix(expert.up.view(), out, compute, "up");
          slots.unpack_down(1, out.data());
          expect_matrix(expert.down.view(), out, compute, "down");
        }
}

TEST(ExpertSlots, BytesLieAsTheLayoutSays) {
  const Shape shape{100, 70};
  for (const ComputeType compute : kComputeTypes) {
    const PackedLayout layout = layout_of(compute, shape, true);
    const RandomExpert expert(5, shape, DType::f32, true);
    ExpertSlots slots(layout, 1);
    std::memset(const_cast<std::byte*>(slots.slot(0)), 0xff, static_cast<std::size_t>(layout.slot_bytes()));
    slots.pack(0, expert.weights());
    const std::byte* base = slots.slot(0);
    const std::int64_t v = layout.v(), padded_k = layout.padded_k(shape.hidden);
    std::int64_t nonzero_padding = 0;
    for (std::int64_t n = 0; n < layout.padded_n(shape.intermediate); ++n) {
      std::int64_t sum = 0;
      for (std::int64_t k = 0; k < padded_k; ++k) {
        const std::int64_t at = ((n / 64 * (padded_k / v) + k / v) * 64 + n % 64) * v + k % v;
        const std::byte* element = base + layout.up_offset() + at * layout.element_bytes();
        if (n >= shape.intermediate || k >= shape.hidden)
          for (std::int64_t b = 0; b < layout.element_bytes(); ++b) nonzero_padding += element[b] != std::byte{0};
        if (compute == ComputeType::int8) sum += static_cast<std::int8_t>(*element);
        if (compute == ComputeType::f32 && n < shape.intermediate && k < shape.hidden) {
          float value;
          std::memcpy(&value, element, 4);
          ASSERT_EQ(value, rounded_row(expert.up.view(), n, compute)[static_cast<std::size_t>(k)]);
        }
      }
      if (compute == ComputeType::int8) {
        const std::int64_t column = layout.padded_n(shape.intermediate) + n;
        std::int32_t stored;
        std::memcpy(&stored, base + layout.column_sum_offset() + column * 4, 4);
        EXPECT_EQ(stored, sum) << "column " << n;
      }
    }
    EXPECT_EQ(nonzero_padding, 0) << name(compute);
    float bias;
    std::memcpy(&bias, base + layout.bias_offset() + (2 * layout.padded_n(shape.intermediate) + 99) * 4, 4);
    EXPECT_EQ(bias, rounded_row(expert.down_bias.view(), 0, ComputeType::f32)[99]);
    std::memcpy(&bias, base + layout.bias_offset() + (2 * layout.padded_n(shape.intermediate) + 100) * 4, 4);
    EXPECT_EQ(bias, 0.0F);
    EXPECT_EQ(layout.slot_bytes() % 64, 0);
    EXPECT_EQ(layout.scale_offset() % 64, 0);
    EXPECT_EQ(layout.bias_offset() % 64, 0);
  }
}

TEST(ExpertSlots, WithoutUpTheRestIsTheSame) {
  const Shape shape{100, 70};
  for (const ComputeType compute : kComputeTypes) {
    PackedLayout layout = layout_of(compute, shape, true);
    const RandomExpert gated(5, shape, DType::f32, true), alone(5, shape, DType::f32, true, 0, false);
    const ExpertSlots with_up = [&] {
      ExpertSlots slots(layout, 1);
      slots.pack(0, gated.weights());
      return slots;
    }();
    layout.gated = false;
    ExpertSlots slots(layout, 1);
    slots.pack(0, alone.weights());
    EXPECT_EQ(layout.slot_bytes(), with_up.layout().slot_bytes() -
                                       layout.matrix_bytes(shape.intermediate, shape.hidden) -
                                       128 * (compute == ComputeType::int8 ? 12 : 4));
    const auto same = [&](std::int64_t at, std::int64_t before, std::int64_t bytes) {
      return std::memcmp(slots.slot(0) + at, with_up.slot(0) + before, static_cast<std::size_t>(bytes)) == 0;
    };
    const PackedLayout& full = with_up.layout();
    EXPECT_TRUE(same(layout.gate_offset(), full.gate_offset(), full.up_offset()));
    EXPECT_TRUE(same(layout.down_offset(), full.down_offset(), full.scale_offset() - full.down_offset()));
    const std::pair<std::int64_t, std::int64_t> tables[] = {{layout.scale_offset(), full.scale_offset()},
                                                            {layout.column_sum_offset(), full.column_sum_offset()},
                                                            {layout.bias_offset(), full.bias_offset()}};
    for (const auto& [at, before] : tables) {  // of 4-byte columns; without int8 all are the biases
      EXPECT_TRUE(same(at, before, 4 * layout.padded_n(shape.intermediate)));
      EXPECT_TRUE(
          same(at + 4 * layout.first_column(2), before + 4 * full.first_column(2), 4 * layout.padded_n(shape.hidden)));
    }
    std::vector<float> out(7000);
    EXPECT_THROW(slots.unpack_up(0, out.data()), InputError);
    EXPECT_THROW(slots.pack(0, gated.weights()), InputError);
    ExpertWeights odd = alone.weights();
    odd.up_bias = gated.up_bias.view();
    EXPECT_THROW(slots.pack(0, odd), InputError);
  }
}

TEST(ExpertSlots, StridedViewsArePackedLikeDenseOnes) {
  const Shape shape{33, 20};
  const RandomExpert expert(5, shape, DType::bf16, false);
  const RandomMatrix wide(9, DType::bf16, 40, 50, 1.0F);
  ExpertWeights weights = expert.weights();
  weights.gate = wide.view();
  weights.gate.rows = 20;
  weights.gate.cols = 33;
  ExpertSlots slots(layout_of(ComputeType::bf16, shape, false), 1);
  slots.pack(0, weights);
  std::vector<float> out(33 * 20);
  slots.unpack_gate(0, out.data());
  expect_matrix(weights.gate, out, ComputeType::bf16, "gate");
}

TEST(ExpertSlots, ExportImportAndSwapMoveAllOfASlot) {
  const Shape shape{100, 30};
  for (const ComputeType compute : kComputeTypes) {
    const RandomExperts experts(3, shape, DType::f32, true);
    const PackedLayout layout = layout_of(compute, shape, true);
    ExpertSlots slots(layout, 3, 1);
    for (std::int64_t s = 0; s < 3; ++s) slots.pack(s, experts.experts[static_cast<std::size_t>(s)].weights());
    const auto copy = [&](std::int64_t s) {
      const auto bytes = slots.export_slot(s);
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    const auto zero = copy(0), one = copy(1), two = copy(2);
    EXPECT_NE(zero, one);
    EXPECT_EQ(static_cast<std::int64_t>(zero.size()), layout.slot_bytes());

    ExpertSlots other(layout, 1);
    other.import_slot(0, two);
    std::vector<float> here(3000), there(3000);
    slots.unpack_down(2, here.data());
    other.unpack_down(0, there.data());
    EXPECT_EQ(here, there);

    slots.import_slot(3, one);  // into the spare slot, then in the place of slot 0
    slots.swap_slots(0, 3);
    EXPECT_EQ(copy(0), one);
    EXPECT_EQ(copy(3), zero);
    EXPECT_EQ(copy(1), one);
    EXPECT_EQ(copy(2), two);
    slots.swap_slots(2, 2);
    EXPECT_EQ(copy(2), two);
  }
}

template <class F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing thrown";
}

/// Pages of [from, from + bytes) that are in memory.
std::int64_t resident_pages(const std::byte* from, std::int64_t bytes) {
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const auto begin = ceil_div(reinterpret_cast<std::int64_t>(from), page) * page;
  const std::int64_t pages = (reinterpret_cast<std::int64_t>(from) + bytes - begin) / page;
  std::vector<unsigned char> state(static_cast<std::size_t>(pages));
  EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), static_cast<std::size_t>(pages * page), state.data()), 0);
  return std::count_if(state.begin(), state.end(), [](unsigned char s) { return (s & 1U) != 0; });
}

TEST(ExpertSlots, FirstTouchReachesEveryPageOfTheSlotsAndNoSpareOne) {
  ExpertSlots slots(layout_of(ComputeType::f32, {640, 640}, false), 5,
                    4);  // of 4.7 MiB: in all above what an allocator keeps
  const std::int64_t slot_bytes = slots.layout().slot_bytes(), page = sysconf(_SC_PAGESIZE);
  // A huge page may reach into the first spare slot, and what the allocator notes is beside the memory.
  const auto untouched = [&] { return resident_pages(slots.slot(6), 3 * slot_bytes - page); };
  ASSERT_LE(resident_pages(slots.slot(0), 9 * slot_bytes - page), 1) << "AddressSanitizer writes to the first page";
  const auto executor = make_openmp_executor(2);
  slots.first_touch(*executor);
  EXPECT_EQ(resident_pages(slots.slot(0), 5 * slot_bytes), 5 * slot_bytes / page);
  EXPECT_EQ(untouched(), 0);
  ExpertSlots(slots.layout(), 0).first_touch(*executor);
}

TEST(ExpertSlots, RefusalsNameWhatIsWrong) {
  const Shape shape{16, 8};
  const RandomExpert expert(5, shape, DType::f32, false), biased(5, shape, DType::f32, true);
  ExpertSlots slots(layout_of(ComputeType::f32, shape, false), 2, 1);
  ExpertWeights wrong = expert.weights();
  wrong.up = expert.down.view();
  EXPECT_THAT(message_of([&] { slots.pack(0, wrong); }), ::testing::AllOf(HasSubstr("up"), HasSubstr("[8, 16]")));
  wrong = expert.weights();
  wrong.down = {};
  EXPECT_THAT(message_of([&] { slots.pack(0, wrong); }), HasSubstr("down"));
  wrong = expert.weights();
  wrong.gate.dtype = DType::i8;
  EXPECT_THAT(message_of([&] { slots.pack(0, wrong); }), HasSubstr("i8"));
  EXPECT_THAT(message_of([&] { slots.pack(0, biased.weights()); }), HasSubstr("without biases"));
  EXPECT_THAT(message_of([&] { slots.pack(3, expert.weights()); }), HasSubstr("slot 3"));
  EXPECT_THAT(message_of([&] { slots.pack(-1, expert.weights()); }), HasSubstr("slot -1"));
  const std::vector<std::byte> few(10);
  EXPECT_THAT(message_of([&] { slots.import_slot(0, few); }), HasSubstr("10 bytes"));
  EXPECT_THAT(message_of([&] { slots.swap_slots(0, 9); }), HasSubstr("slot 9"));
  EXPECT_THROW(ExpertSlots(layout_of(ComputeType::f32, {0, 8}, false), 1), ConfigError);
}

TEST(ExpertSlots, AWeightThatIsNotFiniteMakesItsChannelNaN) {
  const Shape shape{4, 2};
  std::vector<float> gate(8, 1.0F), up(8, 2.0F), down(8, 3.0F);
  gate[5] = std::numeric_limits<float>::infinity();
  ExpertSlots slots(layout_of(ComputeType::int8, shape, false), 1);
  slots.pack(0, {const_matrix_view(gate.data(), 2, 4), const_matrix_view(up.data(), 2, 4),
                 const_matrix_view(down.data(), 4, 2)});
  std::vector<float> out(8);
  slots.unpack_gate(0, out.data());
  EXPECT_EQ(out[0], 1.0F);
  EXPECT_TRUE(std::isnan(out[4]));
}

TEST(ExpertSlots, NoSlotsIsFine) {
  const ExpertSlots slots(layout_of(ComputeType::bf16, {64, 64}, false), 0);
  EXPECT_EQ(slots.slots(), 0);
  EXPECT_EQ(slots.bytes(), 0);
}

}  // namespace
}  // namespace epmoe::test
