#include "experts/onednn/onednn_experts.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <latch>
#include <limits>
#include <thread>

#include "epmoe/core/random.hpp"
#include "epmoe/experts/reference.hpp"
#include "epmoe/quantize/row_format.hpp"
#include "support/world.hpp"

namespace epmoe {
namespace {

/// One layer's experts with random weights, and rows for them.
struct Problem {
  ExpertsConfig config;
  DispatchType dispatch = DispatchType::f32;
  std::vector<std::int64_t> counts;  // entries per expert

  std::vector<std::vector<float>> gate, up, down, gate_bias, up_bias, down_bias;  // per expert
  std::vector<float> x;                                                           // [entries, hidden]
  std::vector<std::int32_t> expert_of;                                            // [entries], shuffled

  Problem(ComputeType compute, std::int64_t hidden, std::int64_t intermediate,
          std::vector<std::int64_t> rows_per_expert, bool biases = false)
      : dispatch(default_dispatch_type(compute)), counts(std::move(rows_per_expert)) {
    auto& shape = config.shape;
    shape.hidden = hidden;
    shape.intermediate = intermediate;
    shape.experts = config.local_experts = static_cast<std::int64_t>(counts.size());
    shape.top_k = 1;
    config.quant = QuantConfig::for_compute(compute);
    config.quant.w1_bias = config.quant.w2_bias = biases;
    for (std::size_t e = 0; e < counts.size(); ++e) {
      const auto seed = 100 + 10 * e;
      gate.push_back(random_matrix(seed, intermediate, hidden));
      up.push_back(random_matrix(seed + 1, intermediate, hidden));
      down.push_back(random_matrix(seed + 2, hidden, intermediate));
      gate_bias.push_back(random_matrix(seed + 3, 1, biases ? intermediate : 0));
      up_bias.push_back(random_matrix(seed + 4, 1, biases ? intermediate : 0));
      down_bias.push_back(random_matrix(seed + 5, 1, biases ? hidden : 0));
      expert_of.insert(expert_of.end(), static_cast<std::size_t>(counts[e]), static_cast<std::int32_t>(e));
    }
    for (std::size_t i = expert_of.size(); i > 1; --i) std::swap(expert_of[i - 1], expert_of[random_bits(7, i, 0) % i]);
    for (std::int64_t r = 0; r < entries(); ++r)
      for (std::int64_t c = 0; c < hidden; ++c)
        x.push_back(random_normal(5, static_cast<std::uint64_t>(r), static_cast<std::uint64_t>(c)));
  }

  [[nodiscard]] std::int64_t entries() const { return static_cast<std::int64_t>(expert_of.size()); }
  [[nodiscard]] ConstMatrixView x_view() const { return const_matrix_view(x.data(), entries(), config.shape.hidden); }
  [[nodiscard]] ExpertWeights weights(std::int32_t expert) const {
    const auto e = static_cast<std::size_t>(expert);
    const auto h = config.shape.hidden, i = config.shape.intermediate;
    const bool gated = is_gated(config.shape.activation);
    ExpertWeights w{const_matrix_view(gate[e].data(), i, h),
                    gated ? const_matrix_view(up[e].data(), i, h) : ConstMatrixView{},
                    const_matrix_view(down[e].data(), h, i)};
    if (config.quant.w1_bias) {
      w.gate_bias = const_matrix_view(gate_bias[e].data(), 1, i);
      if (gated) w.up_bias = const_matrix_view(up_bias[e].data(), 1, i);
    }
    if (config.quant.w2_bias) w.down_bias = const_matrix_view(down_bias[e].data(), 1, h);
    return w;
  }
  static std::vector<float> random_matrix(std::uint64_t seed, std::int64_t rows, std::int64_t cols) {
    std::vector<float> values;
    const float scale = 1.0F / std::sqrt(static_cast<float>(std::max<std::int64_t>(cols, 1)));
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        values.push_back(scale * random_normal(seed, static_cast<std::uint64_t>(r), static_cast<std::uint64_t>(c)));
    return values;
  }
};

/// The rows as they arrive: `top_k` neighbouring entries share a row, in two segments.
struct Arrived {
  AlignedBuffer memory;
  ExpertBatch batch;

  Arrived(const Problem& problem, std::int64_t top_k) {
    const DispatchRowFormat format(problem.dispatch, problem.config.shape.hidden, top_k);
    const auto rows = problem.entries() / top_k;
    memory = AlignedBuffer(std::max<std::int64_t>(1, rows) * format.row_bytes());
    batch.type = problem.dispatch;
    batch.hidden = problem.config.shape.hidden;
    batch.local_experts = problem.config.local_experts;
    for (std::int64_t r = 0; r < rows; ++r) {
      format.encode(problem.x_view(), r * top_k, 1.0F, memory.data() + r * format.row_bytes());
      auto& routing = batch.routing;
      for (std::int64_t k = 0; k < top_k; ++k) {
        const auto expert = problem.expert_of[static_cast<std::size_t>(r * top_k + k)];
        routing.local_slot.push_back(expert);
        routing.physical_expert.push_back(expert);
        routing.logical_expert.push_back(expert);
        routing.k.push_back(static_cast<std::int32_t>(k));
        routing.shard.push_back(0);
        routing.weight.push_back(1.0F);
      }
      routing.row_begin.push_back((r + 1) * top_k);
    }
    const auto first = rows / 3;
    batch.segments = {
        {memory.data(), format.row_bytes(), first, format.scale_offset_bytes(), 0},
        {memory.data() + first * format.row_bytes(), format.row_bytes(), rows - first, format.scale_offset_bytes(), 1}};
  }
};

ExpertSlots pack(const Problem& problem, const PackedLayout& layout) {
  ExpertSlots slots(layout, problem.config.local_experts);
  for (std::int64_t e = 0; e < problem.config.local_experts; ++e)
    slots.pack(e, problem.weights(static_cast<std::int32_t>(e)));
  return slots;
}

/// Runs all rows as one chunk over poisoned scratch memory.
std::vector<float> run(const Experts& experts, const Problem& problem, const ExecutionContext& context,
                       std::int64_t top_k = 1) {
  const auto slots = pack(problem, experts.packed_layout());
  const Arrived arrived(problem, top_k);
  const auto index = index_by_expert(arrived.batch, 0, arrived.batch.rows());
  const auto shapes = experts.workspace_shapes(index.rows, index.entries);
  constexpr std::int64_t kGuard = 64;
  AlignedBuffer workspace13(shapes.workspace13_bytes + kGuard), workspace2(shapes.workspace2_bytes + kGuard);
  std::memset(workspace13.data(), 0xff, static_cast<std::size_t>(workspace13.size()));
  std::memset(workspace2.data(), 0xff, static_cast<std::size_t>(workspace2.size()));
  std::vector<float> out(static_cast<std::size_t>(problem.entries() * problem.config.shape.hidden),
                         std::numeric_limits<float>::quiet_NaN());
  experts.apply(arrived.batch, index, slots, workspace13.data(), workspace2.data(),
                matrix_view(out.data(), problem.entries(), problem.config.shape.hidden), context);
  for (const auto* workspace : {&workspace13, &workspace2})  // nothing written past what was asked for
    for (std::int64_t i = workspace->size() - kGuard; i < workspace->size(); ++i)
      EXPECT_EQ(workspace->data()[i], std::byte{0xff});
  return out;
}

std::vector<double> reference(const Problem& problem, std::int64_t top_k = 1) {
  auto x = problem.x;  // entries that share a row have its values
  const auto hidden = static_cast<std::size_t>(problem.config.shape.hidden);
  for (std::size_t i = 0; i < problem.expert_of.size(); ++i)
    std::copy_n(problem.x.begin() + static_cast<std::ptrdiff_t>(i / static_cast<std::size_t>(top_k) *
                                                                static_cast<std::size_t>(top_k) * hidden),
                hidden, x.begin() + static_cast<std::ptrdiff_t>(i * hidden));
  OwnedRouting routing(problem.entries(), 1);
  for (std::int64_t r = 0; r < problem.entries(); ++r) {
    routing.ids()(r, 0) = problem.expert_of[static_cast<std::size_t>(r)];
    routing.weights()(r, 0) = 1.0F;
  }
  const ReferenceConfig config{problem.config.shape, problem.config.quant, problem.dispatch, true};
  return reference_moe(config, const_matrix_view(x.data(), problem.entries(), problem.config.shape.hidden),
                       routing.view(), [&](std::int32_t e) { return problem.weights(e); });
}

void expect_close(const Problem& problem, const std::vector<float>& found, const std::vector<double>& wanted,
                  const std::string& what) {
  const auto error =
      relative_error(const_matrix_view(found.data(), problem.entries(), problem.config.shape.hidden), wanted);
  EXPECT_LE(error.total, tolerance(problem.config.quant.compute)) << what;
  EXPECT_LE(error.worst_row, 4 * tolerance(problem.config.quant.compute)) << what << ", row " << error.worst_row_index;
}

const std::vector<std::int64_t> kCounts{0, 1, 2, 3, 17, 64, 1};  // M; 88 entries

class OneDnnOf : public ::testing::TestWithParam<ComputeType> {
 protected:
  void SetUp() override {
    if (const auto verdict = supports_onednn(Problem(GetParam(), 64, 64, {1}).config); !verdict)
      GTEST_SKIP() << verdict.reason;
  }
};

TEST_P(OneDnnOf, AgreesWithReferenceAndNativeForAllShapes) {
  test::TestContext context(2);
  for (const std::int64_t hidden : {7, 64, 100, 176})
    for (const std::int64_t intermediate : {7, 64, 100, 176}) {
      const Problem problem(GetParam(), hidden, intermediate, kCounts);
      const auto experts = make_onednn(problem.config);
      const auto what = fmt::format("{} H {} I {}", experts->isa(), hidden, intermediate);
      EXPECT_TRUE(experts->isa().starts_with("brg")) << what;
      const auto found = run(*experts, problem, context);
      const auto wanted = reference(problem);
      expect_close(problem, found, wanted, what);

      const auto native = make_experts("native", problem.config, context);
      EXPECT_EQ(native->packed_layout(), experts->packed_layout()) << "both read the same packed bytes";
      const auto other = run(*native, problem, context);
      std::vector<double> other_wide(other.begin(), other.end());
      expect_close(problem, found, other_wide, what + " against native");
    }
}

/// Counts what is handed out.
class CountingExecutor final : public Executor {
 public:
  [[nodiscard]] int workers() const override { return inner_->workers(); }
  void run(std::int64_t tasks, FunctionRef<void(std::int64_t, int)> body, ProgressHook* hook) override {
    calls.push_back(tasks);
    inner_->run(tasks, body, hook);
  }
  std::vector<std::int64_t> calls;

 private:
  std::unique_ptr<Executor> inner_ = make_openmp_executor(2);
};

TEST_P(OneDnnOf, BothOrdersOfBlocksGiveTheResult) {
  test::TestContext context(2);
  const Problem problem(GetParam(), 100, 76, kCounts);
  const auto wanted = reference(problem);
  const auto blocks = static_cast<std::int64_t>(kCounts.size()) - 1;  // one expert has no rows
  for (const auto order : {BlockOrder::one_by_one, BlockOrder::side_by_side}) {
    CountingExecutor executor;
    ExecutionContext counted = context;
    counted.executor = &executor;
    const auto experts = make_onednn(problem.config, order);
    expect_close(problem, run(*experts, problem, counted), wanted, std::string(experts->name()));
    if (order == BlockOrder::side_by_side)
      EXPECT_EQ(executor.calls, std::vector<std::int64_t>{blocks});
    else
      EXPECT_GT(executor.calls.size(), static_cast<std::size_t>(blocks));
    EXPECT_EQ(make_experts(experts->name(), problem.config, context)->name(), experts->name());
  }
}

TEST_P(OneDnnOf, EveryWireTypeBiasAndActivation) {
  test::TestContext context(1);
  for (const auto dispatch : {DispatchType::f32, DispatchType::f16, DispatchType::bf16, DispatchType::int8})
    for (const auto activation :
         {Activation::silu, Activation::gelu, Activation::swiglu_oai, Activation::gelu_no_mul}) {
      Problem problem(GetParam(), 100, 176, kCounts, /*biases=*/true);
      problem.dispatch = dispatch;
      problem.config.shape.activation = activation;
      expect_close(problem, run(*make_onednn(problem.config), problem, context, 2), reference(problem, 2),
                   fmt::format("{} wire, {}", name(dispatch), name(activation)));
    }
}

TEST_P(OneDnnOf, ManyRowsOfFewExpertsInBlocksWithAllThreads) {
  test::TestContext context(2);
  const Problem problem(GetParam(), 64, 100, {0, 300, 0});  // two equal blocks side by side
  expect_close(problem, run(*make_onednn(problem.config), problem, context), reference(problem), "300 rows");
  const Problem one(GetParam(), 64, 100, {200});  // one product at a time
  expect_close(one, run(*make_onednn(one.config), one, context), reference(one), "200 rows");
}

/// Threads that are not OpenMP's, started together; task i runs on thread i mod 2.
class TwoThreads : public Executor {
 public:
  [[nodiscard]] int workers() const override { return 2; }
  void run(std::int64_t tasks, FunctionRef<void(std::int64_t, int)> body, ProgressHook* /*hook*/) override {
    std::latch together(2);
    const auto work = [&](int worker) {
      together.arrive_and_wait();
      for (std::int64_t task = worker; task < tasks; task += 2) body(task, worker);
    };
    std::thread other(work, 1);
    work(0);
    other.join();
  }
};

TEST_P(OneDnnOf, WorkersOfAForeignExecutorDoNotShareScratchRows) {
  TwoThreads executor;
  ExecutionContext context;
  context.executor = &executor;
  const Problem problem(GetParam(), 176, 176, std::vector<std::int64_t>(12, 20));
  const auto found = run(*make_onednn(problem.config), problem, context);
  expect_close(problem, found, reference(problem), "two threads");
  test::TestContext serial(1);
  EXPECT_EQ(found, run(*make_onednn(problem.config), problem, serial)) << "a block's sums depend on its rows only";
}

TEST_P(OneDnnOf, ABadRowStaysInItsRow) {
  test::TestContext context(1);
  Problem problem(GetParam(), 64, 64, {3, 9});
  const auto clean = run(*make_onednn(problem.config), problem, context);
  constexpr std::int64_t kBad = 5;
  problem.x[kBad * 64 + 11] = std::numeric_limits<float>::quiet_NaN();
  const auto found = run(*make_onednn(problem.config), problem, context);
  for (std::int64_t r = 0; r < problem.entries(); ++r)
    for (std::int64_t c = 0; c < 64; ++c) {
      const auto at = static_cast<std::size_t>(r * 64 + c);
      if (r == kBad)
        EXPECT_TRUE(std::isnan(found[at]));
      else
        EXPECT_EQ(found[at], clean[at]) << r << ' ' << c;
    }
}

TEST_P(OneDnnOf, NoRowsAreNoWork) {
  test::TestContext context(2);
  const Problem problem(GetParam(), 64, 64, {0, 0});
  const auto experts = make_onednn(problem.config);
  EXPECT_TRUE(run(*experts, problem, context).empty());
}

INSTANTIATE_TEST_SUITE_P(Types, OneDnnOf, ::testing::Values(ComputeType::f32, ComputeType::bf16, ComputeType::int8),
                         [](const auto& type) { return std::string(name(type.param)); });

TEST(OneDnnInt8, StaticActivationScales) {
  test::TestContext context(1);
  Problem problem(ComputeType::int8, 100, 64, kCounts);
  if (const auto verdict = supports_onednn(problem.config); !verdict) GTEST_SKIP() << verdict.reason;
  for (auto* scale : {&problem.config.quant.a1, &problem.config.quant.a2}) {
    scale->granularity = ScaleConfig::Granularity::per_tensor;
    scale->is_static = true;
  }
  problem.config.quant.a1.static_scale = 0.03F;
  problem.config.quant.a2.static_scale = 0.01F;
  problem.dispatch = DispatchType::f32;
  expect_close(problem, run(*make_onednn(problem.config), problem, context), reference(problem), "static scales");
}

/// A hook that counts, as the communication side would be driven.
class CountingHook : public ProgressHook {
 public:
  void progress() override { ++calls; }
  int calls = 0;
};

TEST(OneDnnProgress, IsCalledBetweenExperts) {
  const Problem problem(ComputeType::f32, 64, 64, {4, 4, 4, 4, 4});
  if (const auto verdict = supports_onednn(problem.config); !verdict) GTEST_SKIP() << verdict.reason;
  test::TestContext context(1);
  CountingHook hook;
  context.context().progress = &hook;
  (void)run(*make_onednn(problem.config), problem, context);
  EXPECT_EQ(hook.calls, 5);
}

}  // namespace
}  // namespace epmoe
