#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "experts/expert_case.hpp"
#include "support/world.hpp"

/// Batches that are uneven, empty or poisoned.
namespace epmoe::test {
namespace {

constexpr Shape kShape{72, 40};
constexpr std::int64_t kExperts = 4;

struct Fixture {
  explicit Fixture(ComputeType type, int threads = 1)
      : context(threads),
        compute(type),
        weights(kExperts, kShape, DType::f32, true),
        config(experts_config(kShape, type, Activation::silu, true, kExperts)),
        experts(make_experts("native", config, context)),
        slots(weights.pack(experts->packed_layout())) {}
  void check(std::int64_t rows, const std::vector<std::vector<std::int32_t>>& choices, const char* what) {
    const auto values = random_rows(rows, kShape.hidden);
    const auto x = const_matrix_view(values.data(), rows, kShape.hidden);
    const DispatchType dispatch = default_dispatch_type(compute);
    const TestBatch batch(x, dispatch, kExperts, choices);
    const RunResult found = run(*experts, batch.batch, slots, context, 5);
    const auto error =
        relative_error(const_matrix_view(found.rows.data(), batch.batch.routing.entries(), kShape.hidden),
                       reference_entries(config, dispatch, x, batch, weights));
    EXPECT_LE(error.total, tolerance(compute)) << what << " " << name(compute);
    EXPECT_TRUE(found.guards_intact) << what << " " << name(compute);
  }
  TestContext context;
  ComputeType compute;
  RandomExperts weights;
  ExpertsConfig config;
  std::unique_ptr<Experts> experts;
  ExpertSlots slots;
};

using Choices = std::vector<std::vector<std::int32_t>>;

TEST(SpecialRows, UnevenRouting) {
  for (const ComputeType compute : kComputeTypes)
    for (const int threads : {1, 2}) {
      Fixture f(compute, threads);
      f.check(200, Choices(200, {2}), "one hot expert, three empty");
      f.check(6, Choices{{3, 3}, {0, 0, 0}, {1}, {2, 1, 2}, {}, {3}}, "duplicates in a row, and a row of none");
      f.check(1, Choices{{0, 1, 2, 3}}, "all experts for one row");
      f.check(12, Choices(12, std::vector<std::int32_t>{}), "rows without any expert");
      f.check(0, {}, "no rows");
    }
}

/// Counts calls; the executor hands it to the calling thread only.
class CountingHook : public ProgressHook {
 public:
  void progress() override { ++calls; }
  std::int64_t calls = 0;
};
class CountingObserver : public Observer {
 public:
  void add_time(Phase phase, double seconds) override {
    ++times[static_cast<std::size_t>(phase)];
    EXPECT_GE(seconds, 0.0);
  }
  void message(Phase, int, bool, std::int64_t, std::int64_t) override {}
  void expert_rows(std::int32_t, std::int64_t) override {}
  std::int64_t times[static_cast<std::size_t>(Phase::count)] = {};
};

TEST(SpecialRows, EmptyExpertsAreNeverTouched) {
  for (const ComputeType compute : kComputeTypes) {
    Fixture f(compute);
    const auto values = random_rows(5, kShape.hidden);
    const TestBatch batch(const_matrix_view(values.data(), 5, kShape.hidden), default_dispatch_type(compute), kExperts,
                          Choices(5, {1}));
    const auto before = run(*f.experts, batch.batch, f.slots, f.context);
    const std::vector<std::byte> poison(static_cast<std::size_t>(f.slots.layout().slot_bytes()), std::byte{0xff});
    for (const std::int64_t other : {0, 2, 3}) f.slots.import_slot(other, poison);
    EXPECT_EQ(run(*f.experts, batch.batch, f.slots, f.context).rows, before.rows);
  }
}

TEST(SpecialRows, NothingToDoDoesNothing) {
  Fixture f(ComputeType::f32);
  CountingObserver observer;
  CountingHook hook;
  f.context.context().observer = &observer;
  f.context.context().progress = &hook;
  const TestBatch batch({nullptr, DType::f32, 0, kShape.hidden, kShape.hidden, MemorySpace::host}, DispatchType::f32,
                        kExperts, {});
  const ExpertIndex index = index_by_expert(batch.batch, 0, 0);
  EXPECT_EQ(f.experts->workspace_shapes(0, 0).workspace13_bytes, 0);
  f.experts->apply(batch.batch, index, f.slots, nullptr, nullptr,
                   {nullptr, DType::f32, 0, kShape.hidden, kShape.hidden, MemorySpace::host}, f.context);
  EXPECT_EQ(hook.calls, 0);
}

TEST(SpecialRows, ProgressIsDrivenAndPhasesAreTimed) {
  for (const ComputeType compute : kComputeTypes) {
    Fixture f(compute);
    CountingObserver observer;
    CountingHook hook;
    f.context.context().observer = &observer;
    f.context.context().progress = &hook;
    const auto values = random_rows(8, kShape.hidden);
    const TestBatch batch(const_matrix_view(values.data(), 8, kShape.hidden), default_dispatch_type(compute), kExperts,
                          two_choices(8, kExperts));
    run(*f.experts, batch.batch, f.slots, f.context);
    EXPECT_GT(hook.calls, 8);  // at least once a tile of each GEMM and expert
    const auto timed = [&](Phase phase) { return observer.times[static_cast<std::size_t>(phase)]; };
    EXPECT_EQ(timed(Phase::permute), 1);
    EXPECT_EQ(timed(Phase::gemm1), 1);
    EXPECT_EQ(timed(Phase::act), compute == ComputeType::int8 ? 1 : 0);
    EXPECT_EQ(timed(Phase::gemm2), 1);
  }
}

TEST(SpecialRows, ANaNOrInfRowStaysInItsRow) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const ComputeType compute : kComputeTypes)
      for (const DispatchType dispatch : {DispatchType::f32, default_dispatch_type(compute)})
        for (const bool static_scales : {false, true}) {
          if (static_scales && compute != ComputeType::int8) continue;
          Fixture f(compute);
          if (static_scales) {
            for (ScaleConfig* scale : {&f.config.quant.a1, &f.config.quant.a2}) {
              scale->granularity = ScaleConfig::Granularity::per_tensor;
              scale->is_static = true;
              scale->static_scale = 0.05F;
            }
            f.experts = make_experts("native", f.config, f.context);
          }
          auto values = random_rows(9, kShape.hidden);
          const auto clean_x = values;
          values[4 * kShape.hidden + 3] = bad;
          const Choices choices(9, {1, 2});
          const TestBatch clean(const_matrix_view(clean_x.data(), 9, kShape.hidden), dispatch, kExperts, choices);
          const TestBatch poisoned(const_matrix_view(values.data(), 9, kShape.hidden), dispatch, kExperts, choices);
          const auto wanted = run(*f.experts, clean.batch, f.slots, f.context).rows;
          const auto found = run(*f.experts, poisoned.batch, f.slots, f.context).rows;
          std::int64_t leaked = 0, finite = 0;
          for (std::int64_t e = 0; e < 18; ++e)
            for (std::int64_t c = 0; c < kShape.hidden; ++c) {
              const auto i = static_cast<std::size_t>(e * kShape.hidden + c);
              if (e / 2 == 4)
                finite += std::isfinite(found[i]);
              else
                leaked += std::memcmp(&found[i], &wanted[i], 4) != 0;
            }
          EXPECT_EQ(leaked, 0) << name(compute) << " wire " << name(dispatch) << " " << bad;
          EXPECT_EQ(finite, 0) << name(compute) << " wire " << name(dispatch) << " " << bad;
        }
}

TEST(SpecialRows, SwappedSlotsAreUsedAtTheNextCall) {
  Fixture f(ComputeType::bf16);
  const auto values = random_rows(3, kShape.hidden);
  const auto x = const_matrix_view(values.data(), 3, kShape.hidden);
  const TestBatch to_zero(x, DispatchType::bf16, kExperts, Choices(3, {0})),
      to_three(x, DispatchType::bf16, kExperts, Choices(3, {3}));
  const auto zero = run(*f.experts, to_zero.batch, f.slots, f.context).rows;
  const auto three = run(*f.experts, to_three.batch, f.slots, f.context).rows;
  f.slots.swap_slots(0, 3);
  EXPECT_EQ(run(*f.experts, to_zero.batch, f.slots, f.context).rows, three);
  EXPECT_EQ(run(*f.experts, to_three.batch, f.slots, f.context).rows, zero);
  EXPECT_NE(zero, three);
}

TEST(SpecialRows, UnalignedWeightsPackAlike) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const RandomExperts aligned(1, kShape, dtype, true, 0), shifted(1, kShape, dtype, true, 1);
    const PackedLayout layout = Fixture(ComputeType::bf16).experts->packed_layout();
    const auto a = aligned.pack(layout), b = shifted.pack(layout);
    const auto left = a.export_slot(0), right = b.export_slot(0);
    EXPECT_EQ(std::memcmp(left.data(), right.data(), left.size()), 0) << name(dtype);
  }
}

}  // namespace
}  // namespace epmoe::test
