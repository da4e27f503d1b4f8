#include "epmoe/prepare_finalize/batched_adaptor.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "epmoe/core/random.hpp"
#include "epmoe/quantize/row_format.hpp"

namespace epmoe {
namespace {

/// A batch of two segments with a gap between them; row r has the experts {r % experts, 0} (0 twice for r % experts ==
/// 0).
struct Fixture {
  AlignedBuffer memory;
  ExpertBatch batch;
  Fixture(DispatchType type, std::int64_t hidden, std::int64_t rows, std::int64_t experts) {
    const DispatchRowFormat format(type, hidden, 2);
    memory = AlignedBuffer((rows + 1) * format.row_bytes());
    std::vector<float> x(static_cast<std::size_t>(rows * hidden));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = random_normal(1, i, 0);
    batch.type = type;
    batch.hidden = hidden;
    batch.local_experts = experts;
    const auto first = rows / 3;
    for (std::int64_t r = 0; r < rows; ++r) {
      format.encode(const_matrix_view(x.data(), rows, hidden), r, 1.0F,
                    memory.data() + (r < first ? r : r + 1) * format.row_bytes());
      for (const auto e : {r % experts, std::int64_t{0}})
        batch.routing.local_slot.push_back(static_cast<std::int32_t>(e));
      batch.routing.row_begin.push_back(2 * (r + 1));
    }
    batch.segments.push_back({memory.data(), format.row_bytes(), first, format.scale_offset_bytes(), 0});
    batch.segments.push_back({memory.data() + (first + 1) * format.row_bytes(), format.row_bytes(), rows - first,
                              format.scale_offset_bytes(), 1});
  }
};

TEST(BatchedAdaptor, HoldsTheRowsOfEachExpert) {
  for (const auto type : {DispatchType::f32, DispatchType::f16, DispatchType::bf16, DispatchType::int8})
    for (const std::int64_t hidden : {1, 7, 100}) {
      const Fixture f(type, hidden, 11, 4);
      const auto index = index_by_expert(f.batch, 2, 8);
      const auto out = to_batched(f.batch, index, 13);
      const RowLocator locator(f.batch);
      ASSERT_EQ(out.count.size(), 4U);
      std::vector<float> found(static_cast<std::size_t>(hidden)), wanted(found);
      std::int64_t rows = 0;
      for (std::int64_t e = 0; e < 4; ++e)
        for (std::int64_t i = 0; i < out.count[static_cast<std::size_t>(e)]; ++i, ++rows) {
          const auto row = index.row[static_cast<std::size_t>(index.expert_begin[static_cast<std::size_t>(e)] + i)];
          const auto* at = out.rows.data() + (e * out.max_rows + i) * out.row_stride_bytes;
          float scale = 1.0F, wanted_scale = 1.0F;
          if (type == DispatchType::int8) {
            std::memcpy(&scale, at + out.scale_offset_bytes, sizeof scale);
            wanted_scale = locator.scale(row);
          }
          decode_hidden(type, at, scale, hidden, found.data());
          decode_hidden(type, locator.row(row), wanted_scale, hidden, wanted.data());
          EXPECT_EQ(found, wanted);
        }
      EXPECT_EQ(rows, index.entries);
    }
}

TEST(BatchedAdaptor, RefusesTooManyRows) {
  const Fixture f(DispatchType::f32, 4, 6, 2);
  try {
    (void)to_batched(f.batch, index_by_expert(f.batch, 0, 6), 8);
    FAIL() << "expert 0 has 9 rows";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "batched form: local expert 0 has 9 rows, the padded form has room for 8");
  }
}

TEST(BatchedAdaptor, EmptyBatch) {
  const Fixture f(DispatchType::bf16, 4, 0, 3);
  const auto out = to_batched(f.batch, index_by_expert(f.batch, 0, 0), 0);
  EXPECT_EQ(out.count, std::vector<std::int64_t>(3, 0));
}

}  // namespace
}  // namespace epmoe
