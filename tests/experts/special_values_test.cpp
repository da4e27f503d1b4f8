#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "experts/expert_case.hpp"
#include "support/world.hpp"

/// Rows and weights of extreme or degenerate values, for every format with every kernel set.
namespace epmoe::test {
namespace {

constexpr Shape kShape{80, 72};  // no multiple of any group: each ends in a tail
constexpr float kInfinity = std::numeric_limits<float>::infinity();

ExpertsConfig config_for(const QuantConfig& quant, const std::string& isa, Shape shape = kShape) {
  ExpertsConfig config = experts_config(shape, quant.compute, Activation::silu, false, 1, isa);
  config.quant = quant;
  return config;
}

std::vector<std::vector<std::int32_t>> all_to_one(std::int64_t rows) {
  return std::vector<std::vector<std::int32_t>>(static_cast<std::size_t>(rows), {0});
}

template <class Check>
void for_all_formats(Check&& check) {
  for (const QuantConfig& quant : all_formats())
    for (const std::string& isa : isas()) {
      SCOPED_TRACE(isa + " " + name(quant));
      check(quant, isa);
    }
}

struct Fill {
  std::int64_t row;
  float value;
};
constexpr Fill kFills[] = {{1, 0.0F},      {3, 1e-40F},     {4, 0.75F},
                           {6, kInfinity}, {7, -kInfinity}, {9, std::numeric_limits<float>::quiet_NaN()},
                           {11, 3e38F}};

TEST(SpecialValues, RowsStayByThemselves) {
  constexpr std::int64_t kRows = 13;
  const RandomExperts weights(1, kShape, DType::f32, false);
  const auto plain = random_rows(kRows, kShape.hidden);
  auto odd = plain;
  for (const auto& [row, value] : kFills)
    for (std::int64_t c = 0; c < kShape.hidden; ++c)
      if (std::isfinite(value) || c == 5) odd[static_cast<std::size_t>(row * kShape.hidden + c)] = value;
  TestContext context;
  for_all_formats([&](const QuantConfig& quant, const std::string& isa) {
    const auto experts = make_experts("native", config_for(quant, isa), context);
    const ExpertSlots slots = weights.pack(experts->packed_layout());
    const auto x = const_matrix_view(odd.data(), kRows, kShape.hidden);
    for (const DispatchType wire : {DispatchType::f32, default_dispatch_type(quant.compute)}) {
      const TestBatch batch(x, wire, 1, all_to_one(kRows));
      const TestBatch untouched(const_matrix_view(plain.data(), kRows, kShape.hidden), wire, 1, all_to_one(kRows));
      const auto found = run(*experts, batch.batch, slots, context).rows;
      const auto clean = run(*experts, untouched.batch, slots, context).rows;
      const auto wanted = reference_entries(config_for(quant, isa), wire, x, batch, weights);
      for (std::int64_t r = 0; r < kRows; ++r) {
        const float* row = found.data() + r * kShape.hidden;
        const auto* fill =
            std::find_if(std::begin(kFills), std::end(kFills), [r](const Fill& f) { return f.row == r; });
        if (fill == std::end(kFills)) {
          EXPECT_EQ(std::memcmp(row, clean.data() + r * kShape.hidden, kShape.hidden * 4), 0) << "row " << r;
          continue;
        }
        double error = 0.0, norm = 0.0;
        for (std::int64_t c = 0; c < kShape.hidden; ++c) {
          const double want = wanted[static_cast<std::size_t>(r * kShape.hidden + c)];
          if (!std::isfinite(fill->value)) {
            EXPECT_FALSE(std::isfinite(row[c])) << "row " << r << " of " << fill->value;
          } else if (fill->value == 0.0F) {
            EXPECT_EQ(row[c], 0.0F) << "row " << r;
          } else if (fill->value == 0.75F) {
            error += std::pow(static_cast<double>(row[c]) - want, 2);
            norm += want * want;
          } else if (fill->value == 1e-40F) {  // products of such values vanish in f32
            EXPECT_LE(std::abs(static_cast<double>(row[c]) - want), 1e-38) << "row " << r;
          }
        }
        EXPECT_LE(std::sqrt(error), tolerance(quant.compute) * std::sqrt(norm)) << "row " << r;
      }
    }
  });
}

/// Weights whose output channels are degenerate in one way each; others are random.
struct OddWeights {
  OddWeights()
      : gate(channels(1, kShape.intermediate, kShape.hidden)),
        up(channels(2, kShape.intermediate, kShape.hidden)),
        down(channels(3, kShape.hidden, kShape.intermediate)) {}
  static std::vector<float> channels(std::uint64_t seed, std::int64_t n, std::int64_t k) {
    std::vector<float> w = random_rows(n, k, seed);
    for (float& value : w) value /= 8.0F;
    const auto fill = [&](std::int64_t channel, const std::function<float(std::int64_t)>& value) {
      for (std::int64_t i = 0; i < k; ++i) w[static_cast<std::size_t>(channel * k + i)] = value(i);
    };
    fill(2, [](std::int64_t) { return 0.0F; });
    fill(3, [](std::int64_t) { return 0.7F; });
    fill(4, [](std::int64_t) { return -0.7F; });
    fill(5, [](std::int64_t i) { return i % 2 == 0 ? 1e-40F : -2e-40F; });  // a subnormal maximum
    fill(6, [k](std::int64_t i) { return i < k - k % 32 ? 0.0F : 0.3F; });  // only the tail of the groups
    fill(7, [](std::int64_t i) { return i < 32 ? 0.0F : 0.01F * static_cast<float>(i % 5); });  // none below zero
    fill(8, [](std::int64_t i) { return -0.01F * static_cast<float>(1 + i % 3); });             // none above
    fill(9, [](std::int64_t i) { return i == 33 ? 100.0F : 0.0F; });
    return w;
  }
  [[nodiscard]] ExpertWeights weights() const {
    return {const_matrix_view(gate.data(), kShape.intermediate, kShape.hidden),
            const_matrix_view(up.data(), kShape.intermediate, kShape.hidden),
            const_matrix_view(down.data(), kShape.hidden, kShape.intermediate)};
  }
  std::vector<float> gate, up, down;
};

/// Root mean square of the errors and of the wanted values of one output column.
struct ColumnErrors {
  double error = 0.0, size = 0.0;
};
ColumnErrors of_column(const std::vector<float>& found, const std::vector<double>& wanted, std::int64_t column) {
  ColumnErrors sums;
  for (std::size_t i = static_cast<std::size_t>(column); i < wanted.size(); i += kShape.hidden) {
    const double difference = static_cast<double>(found[i]) - wanted[i];
    sums.error += difference * difference;
    sums.size += wanted[i] * wanted[i];
  }
  return {std::sqrt(sums.error), std::sqrt(sums.size)};
}

TEST(SpecialValues, DegenerateChannelsAndGroupsMatchTheReference) {
  constexpr std::int64_t kRows = 7;
  const OddWeights odd;
  const auto values = random_rows(kRows, kShape.hidden);
  const auto x = const_matrix_view(values.data(), kRows, kShape.hidden);
  TestContext context;
  for_all_formats([&](const QuantConfig& quant, const std::string& isa) {
    const ExpertsConfig config = config_for(quant, isa);
    const DispatchType wire = default_dispatch_type(quant.compute);
    const TestBatch batch(x, wire, 1, all_to_one(kRows));
    const auto experts = make_experts("native", config, context);
    ExpertSlots slots(experts->packed_layout(), 1);
    slots.pack(0, odd.weights());
    const auto found = run(*experts, batch.batch, slots, context).rows;
    ReferenceConfig reference;
    reference.shape = config.shape;
    reference.shape.top_k = 1;
    reference.quant = quant;
    reference.dispatch = wire;
    OwnedRouting routing(kRows, 1);
    for (std::int64_t r = 0; r < kRows; ++r) {
      routing.ids()(r, 0) = 0;
      routing.weights()(r, 0) = 1.0F;
    }
    const auto wanted = reference_moe(reference, x, routing.view(), [&](std::int32_t) { return odd.weights(); });
    for (std::int64_t c = 0; c < kShape.hidden; ++c) {
      const ColumnErrors column = of_column(found, wanted, c);
      // The dot-product instructions of AVX512-BF16 take subnormal values for zero.
      EXPECT_LE(column.error, 2 * tolerance(quant.compute) * column.size + 1e-35) << "column " << c;
    }
    EXPECT_EQ(of_column(found, wanted, 2).size, 0.0) << "a channel of zeros";
    EXPECT_EQ(of_column(found, wanted, 2).error, 0.0) << "a channel of zeros";
  });
}

/// Channels that share a scale with a weight that is not finite are lost; no other is touched.
TEST(SpecialValues, AWeightThatIsNotFiniteStaysInItsBlock) {
  constexpr std::int64_t kRows = 5, kChannel = 11;
  const auto values = random_rows(kRows, kShape.hidden);
  const auto x = const_matrix_view(values.data(), kRows, kShape.hidden);
  const RandomExpert plain(5, kShape, DType::f32, false);
  TestContext context;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
    std::vector<float> down(static_cast<std::size_t>(kShape.hidden * kShape.intermediate));
    for (std::int64_t r = 0; r < kShape.hidden; ++r)
      read_row(plain.down.view(), r, down.data() + r * kShape.intermediate);
    down[kChannel * kShape.intermediate + 40] = bad;
    ExpertWeights damaged = plain.weights();
    damaged.down = const_matrix_view(down.data(), kShape.hidden, kShape.intermediate);
    for_all_formats([&](const QuantConfig& quant, const std::string& isa) {
      const auto experts = make_experts("native", config_for(quant, isa), context);
      const TestBatch batch(x, default_dispatch_type(quant.compute), 1, all_to_one(kRows));
      const auto result = [&](const ExpertWeights& weights) {
        ExpertSlots slots(experts->packed_layout(), 1);
        slots.pack(0, weights);
        return run(*experts, batch.batch, slots, context).rows;
      };
      const auto clean = result(plain.weights()), found = result(damaged);
      const std::int64_t rows_of_block = quant.weights.scaled() ? quant.weights.block_rows : 1;  // 0: all
      for (std::int64_t i = 0; i < kRows * kShape.hidden; ++i) {
        const std::int64_t channel = i % kShape.hidden;
        const bool lost = rows_of_block == 0 || channel / rows_of_block == kChannel / rows_of_block;
        const auto at = static_cast<std::size_t>(i);
        if (lost)
          ASSERT_FALSE(std::isfinite(found[at])) << bad << " channel " << channel;
        else
          ASSERT_EQ(found[at], clean[at]) << bad << " channel " << channel;
      }
    });
  }
}

/// int8 at the longest K that is taken, all values extreme: the largest sums there can be.
TEST(SpecialValues, TheLargestInt8SumsAreExact) {
  constexpr std::int64_t kMostK = 66311;
  TestContext context;
  const QuantConfig quant = QuantConfig::for_compute(ComputeType::int8);
  for (const Shape shape : {Shape{kMostK, 1}, Shape{1, kMostK}}) {
    const std::vector<float> ones(static_cast<std::size_t>(kMostK), 1.0F), minus(ones.size(), -1.0F);
    const auto& w = shape.hidden == 1 ? minus : ones;
    const ExpertWeights weights{const_matrix_view(ones.data(), shape.intermediate, shape.hidden),
                                const_matrix_view(w.data(), shape.intermediate, shape.hidden),
                                const_matrix_view(w.data(), shape.hidden, shape.intermediate)};
    const auto x = const_matrix_view(ones.data(), 1, shape.hidden);
    const TestBatch batch(x, DispatchType::int8, 1, all_to_one(1));
    const double gate = static_cast<double>(shape.hidden), up = shape.hidden == 1 ? -gate : gate;
    const double inner = gate / (1.0 + std::exp(-gate)) * up;
    const double wanted = static_cast<double>(shape.intermediate) * inner * (shape.hidden == 1 ? -1.0 : 1.0);
    for (const std::string& isa : isas()) {
      const auto experts = make_experts("native", config_for(quant, isa, shape), context);
      ExpertSlots slots(experts->packed_layout(), 1);
      slots.pack(0, weights);
      const auto found = run(*experts, batch.batch, slots, context).rows;
      for (const float value : found)
        EXPECT_NEAR(static_cast<double>(value), wanted, 1e-5 * std::abs(wanted)) << isa << " H " << shape.hidden;
    }
  }
}

}  // namespace
}  // namespace epmoe::test
