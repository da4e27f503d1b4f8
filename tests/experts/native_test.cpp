#include <gtest/gtest.h>

#include <cmath>

#include "experts/batch_rows.hpp"
#include "experts/expert_case.hpp"
#include "experts/native/gather.hpp"
#include "support/world.hpp"

namespace epmoe::test {
namespace {

struct Setting {
  Shape shape;
  ComputeType compute;
  DispatchType dispatch;
  Activation activation;
  bool biases;
  std::int64_t rows;
  DType weights = DType::f32;
};

std::string describe(const Setting& s) {
  return std::string(name(s.compute)) + " wire " + std::string(name(s.dispatch)) + " " +
         std::string(name(s.activation)) + " H " + std::to_string(s.shape.hidden) + " I " +
         std::to_string(s.shape.intermediate) + " M " + std::to_string(s.rows) + (s.biases ? " biases" : "");
}

/// Every ISA against the f64 reference that quantises alike.
void check(const Setting& s, const QuantConfig* quant = nullptr) {
  constexpr std::int64_t kExperts = 3;
  const auto values = random_rows(s.rows, s.shape.hidden);
  const auto x = const_matrix_view(values.data(), s.rows, s.shape.hidden);
  const TestBatch batch(x, s.dispatch, kExperts, two_choices(s.rows, kExperts));
  const RandomExperts weights(kExperts, s.shape, s.weights, s.biases, 0, is_gated(s.activation));
  TestContext context;
  ExpertsConfig config = experts_config(s.shape, s.compute, s.activation, s.biases, kExperts);
  if (quant != nullptr) config.quant = *quant;
  const auto wanted = reference_entries(config, s.dispatch, x, batch, weights);
  for (const std::string& isa : isas()) {
    config.isa = isa;
    const auto experts = make_experts("native", config, context);
    ASSERT_EQ(experts->isa(), isa);
    const ExpertSlots slots = weights.pack(experts->packed_layout());
    const RunResult found = run(*experts, batch.batch, slots, context);
    const auto error = relative_error(const_matrix_view(found.rows.data(), 2 * s.rows, s.shape.hidden), wanted);
    EXPECT_LE(error.total, tolerance(s.compute)) << isa << " " << describe(s);
    EXPECT_LE(error.worst_row, 4 * tolerance(s.compute))
        << isa << " " << describe(s) << " row " << error.worst_row_index;
    EXPECT_TRUE(found.guards_intact) << isa << " " << describe(s);
  }
}

TEST(NativeExperts, ShapesAndRowCounts) {
  const Shape shapes[] = {{1, 1},     {7, 64},  {64, 1},   {64, 7},   {100, 176},
                          {176, 100}, {1, 176}, {2880, 7}, {7, 2880}, {64, 64}};
  int turn = 0;
  for (const Shape shape : shapes)
    for (const std::int64_t rows : {0, 1, 2, 3, 17, 64})
      for (const ComputeType compute : kComputeTypes) {
        if (shape.hidden * shape.intermediate > 18000 && rows == 64) continue;
        const Activation activation = activations()[static_cast<std::size_t>(turn++) % activations().size()];
        check({shape, compute, default_dispatch_type(compute), activation, turn % 2 == 0, rows});
      }
}

TEST(NativeExperts, ActivationsAndBiases) {
  for (const Activation activation : activations())
    for (const bool biases : {false, true})
      for (const ComputeType compute : kComputeTypes)
        for (const std::int64_t rows : {1, 19})
          check({{100, 80}, compute, default_dispatch_type(compute), activation, biases, rows});
}

TEST(NativeExperts, EveryWireTypeMeetsEveryComputeType) {
  for (const DispatchType dispatch : {DispatchType::f32, DispatchType::f16, DispatchType::bf16, DispatchType::int8})
    for (const ComputeType compute : kComputeTypes)
      for (const DType weights : {DType::f32, DType::f16, DType::bf16})
        check({{300, 65}, compute, dispatch, Activation::silu, true, 9, weights});
}

TEST(NativeExperts, RowsAreConvertedOnceOrUsedWhereTheyAre) {
  constexpr std::int64_t kRows = 5, kExperts = 3;
  for (const ComputeType compute : {ComputeType::f32, ComputeType::bf16})
    for (const std::int64_t hidden : {128, 96, 130}) {  // K padded to 64: only 128 needs no padding
      const auto values = random_rows(kRows, hidden);
      const TestBatch batch(const_matrix_view(values.data(), kRows, hidden), default_dispatch_type(compute), kExperts,
                            two_choices(kRows, kExperts));
      TestContext context;
      const ExpertsConfig config = experts_config({hidden, 8}, compute, Activation::silu, false, kExperts);
      const ExpertIndex index = index_by_expert(batch.batch, 0, kRows);
      AlignedBuffer store(kRows * 1024);
      std::vector<const void*> pointers(static_cast<std::size_t>(index.entries));
      const std::int64_t read_bytes = round_up(hidden, 64) * (compute == ComputeType::f32 ? 4 : 2);
      native::gather({config, *kernels::find_kernel_set("")->functions}, batch.batch, index,
                     {store.data(), 1024, read_bytes}, {}, {pointers.data(), nullptr}, context.context());
      const BatchRows rows(batch.batch, index);
      for (std::size_t i = 0; i < pointers.size(); ++i) {
        const std::int64_t row = index.row[i];
        const void* wanted = hidden == 128 ? rows.row(row) : store.data() + row * 1024;
        EXPECT_EQ(pointers[i], wanted) << name(compute) << " hidden " << hidden << " entry " << i;
      }
    }
}

TEST(NativeExperts, StaticActivationScales) {
  for (const bool first : {true, false})
    for (const bool second : {true, false})
      for (const DispatchType dispatch : {DispatchType::f32, DispatchType::int8}) {
        QuantConfig quant = QuantConfig::for_compute(ComputeType::int8);
        const auto make_static = [](ScaleConfig& scale, float value) {
          scale.granularity = ScaleConfig::Granularity::per_tensor;
          scale.is_static = true;
          scale.static_scale = value;
        };
        if (first) make_static(quant.a1, 0.02F);  // saturates beyond 2.54, which some values are
        if (second) make_static(quant.a2, 0.03F);
        check({{128, 96}, ComputeType::int8, dispatch, Activation::silu, false, 12}, &quant);
      }
}

TEST(NativeExperts, StaticScaleIsUsed) {  // not just tolerated: a coarse scale must show in the result
  const Shape shape{64, 64};
  const auto values = random_rows(4, 64);
  const auto x = const_matrix_view(values.data(), 4, 64);
  const TestBatch batch(x, DispatchType::f32, 1, {{0}, {0}, {0}, {0}});
  const RandomExperts weights(1, shape, DType::f32, false);
  TestContext context;
  ExpertsConfig config = experts_config(shape, ComputeType::int8, Activation::silu, false, 1);
  const auto dynamic = make_experts("native", config, context);
  const ExpertSlots slots = weights.pack(dynamic->packed_layout());
  config.quant.a1.granularity = ScaleConfig::Granularity::per_tensor;
  config.quant.a1.is_static = true;
  config.quant.a1.static_scale = 1.0F;
  const auto coarse = make_experts("native", config, context);
  EXPECT_NE(run(*dynamic, batch.batch, slots, context).rows, run(*coarse, batch.batch, slots, context).rows);
}

TEST(NativeExperts, QuantisationDriftIsWhatTheFormatCosts) {
  const Shape shape{256, 128};
  const auto values = random_rows(16, shape.hidden);
  const auto x = const_matrix_view(values.data(), 16, shape.hidden);
  const RandomExperts weights(3, shape, DType::f32, false);
  TestContext context;
  for (const auto& [compute, low, high] :
       {std::tuple{ComputeType::bf16, 1e-4, 1e-2}, std::tuple{ComputeType::int8, 1e-3, 5e-2}}) {
    const DispatchType dispatch = default_dispatch_type(compute);
    const TestBatch batch(x, dispatch, 3, two_choices(16, 3));
    const ExpertsConfig config = experts_config(shape, compute, Activation::silu, false, 3);
    const auto experts = make_experts("native", config, context);
    const RunResult found = run(*experts, batch.batch, weights.pack(experts->packed_layout()), context);
    const auto drift = relative_error(const_matrix_view(found.rows.data(), 32, shape.hidden),
                                      reference_entries(config, dispatch, x, batch, weights, false));
    EXPECT_GT(drift.total, low);
    EXPECT_LT(drift.total, high);
  }
}

TEST(ReferenceExperts, AgreesWithReferenceMoe) {
  const Shape shape{100, 72};
  const auto values = random_rows(9, shape.hidden);
  const auto x = const_matrix_view(values.data(), 9, shape.hidden);
  TestContext context;
  for (const Activation activation : {Activation::gelu, Activation::relu2_no_mul}) {
    const RandomExperts weights(3, shape, DType::bf16, true, 0, is_gated(activation));
    for (const ComputeType compute : kComputeTypes)
      for (const DispatchType dispatch : {DispatchType::f32, DispatchType::bf16, DispatchType::int8}) {
        const TestBatch batch(x, dispatch, 3, two_choices(9, 3));
        const ExpertsConfig config = experts_config(shape, compute, activation, true, 3);
        const auto experts = make_experts("reference", config, context);
        const RunResult found = run(*experts, batch.batch, weights.pack(experts->packed_layout()), context, 4);
        const auto error = relative_error(const_matrix_view(found.rows.data(), 18, shape.hidden),
                                          reference_entries(config, dispatch, x, batch, weights));
        EXPECT_LE(error.worst_row, 1e-6) << name(compute) << " " << name(dispatch) << " " << name(activation);
        EXPECT_TRUE(found.guards_intact);
      }
  }
}

}  // namespace
}  // namespace epmoe::test
