#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "experts/covering_set.hpp"
#include "experts/expert_case.hpp"
#include "support/world.hpp"

/// Runs one case of a covering set with every kernel set against the f64 reference that quantises alike.
namespace epmoe::test {

/// Weights of all cases: views into one stretch of values whose size and mean change every 24 values, so that scales
/// and zero points of neighbouring groups and channels differ.
class WeightPool {
 public:
  explicit WeightPool(DType dtype) : dtype_(dtype), bytes_(static_cast<std::size_t>(kValues * size_bytes(dtype))) {
    for (std::int64_t i = 0; i < kPeriod; ++i) {
      const std::uint64_t bits = random_bits(11, 0, static_cast<std::uint64_t>(i));
      const std::uint64_t of_run = random_bits(11, 1, static_cast<std::uint64_t>(i / 24));
      float value = 0.0F;  // a sum of four uniform values is normal enough
      for (unsigned part = 0; part < 4; ++part)
        value += static_cast<float>((bits >> (16 * part)) & 0xffffU) / 65536.0F - 0.5F;
      value = std::ldexp(value + 0.25F * static_cast<float>(of_run % 3) - 0.25F, static_cast<int>(of_run / 3 % 4) - 2);
      const auto half = dtype == DType::f16 ? to_f16(value).bits : to_bf16(value).bits;
      std::byte* at = bytes_.data() + i * size_bytes(dtype);
      if (dtype == DType::f32)
        std::memcpy(at, &value, 4);
      else
        std::memcpy(at, &half, 2);
    }
    for (std::int64_t i = kPeriod; i < kValues; i += kPeriod)
      std::memcpy(bytes_.data() + i * size_bytes(dtype), bytes_.data(),
                  static_cast<std::size_t>(std::min(kPeriod, kValues - i) * size_bytes(dtype)));
  }
  /// [rows, cols], another stretch for every `matrix`.
  [[nodiscard]] ConstMatrixView view(std::int64_t matrix, std::int64_t rows, std::int64_t cols) const {
    const std::int64_t first = matrix * 100003 % kSpread;
    return {bytes_.data() + first * size_bytes(dtype_), dtype_, rows, cols, cols, MemorySpace::host};
  }
  [[nodiscard]] ExpertWeights expert(std::int64_t e, const CoveringCase& c) const {
    const bool gated = is_gated(c.activation);
    ExpertWeights weights{view(6 * e, c.intermediate, c.hidden), {}, view(6 * e + 2, c.hidden, c.intermediate)};
    if (gated) weights.up = view(6 * e + 1, c.intermediate, c.hidden);
    if (!c.biases) return weights;
    weights.gate_bias = view(6 * e + 3, 1, c.intermediate);
    if (gated) weights.up_bias = view(6 * e + 4, 1, c.intermediate);
    weights.down_bias = view(6 * e + 5, 1, c.hidden);
    return weights;
  }
  static const WeightPool& of(DType dtype) {
    static const WeightPool f32(DType::f32), f16(DType::f16), bf16(DType::bf16);
    return dtype == DType::f32 ? f32 : dtype == DType::f16 ? f16 : bf16;
  }

 private:
  static constexpr std::int64_t kPeriod = 1000003;  // a prime: no two rows of a matrix are the same
  static constexpr std::int64_t kSpread = 1 << 20;
  static constexpr std::int64_t kValues = kSpread + 2880 * 2880;
  DType dtype_;
  std::vector<std::byte> bytes_;
};

inline std::string describe(const CoveringCase& c) {
  return fmt::format("M {} H {} I {} E {} {} wire {} weights {}{}", c.rows, c.hidden, c.intermediate, c.experts,
                     name(c.activation), name(c.wire), name(c.weights), c.biases ? " biases" : "");
}

inline ExpertsConfig config_of(const QuantConfig& quant, const CoveringCase& c) {
  ExpertsConfig config = experts_config({c.hidden, c.intermediate}, quant.compute, c.activation, c.biases, c.experts);
  config.quant = quant;
  config.quant.w1_bias = config.quant.w2_bias = c.biases;
  return config;
}

/// Memory of the packed layer.
inline std::int64_t layer_bytes(const QuantConfig& quant, const CoveringCase& c) {
  PackedLayout layout;
  layout.compute = quant.compute;
  layout.weights = quant.weights;
  layout.hidden = c.hidden;
  layout.intermediate = c.intermediate;
  layout.biases = c.biases;
  layout.gated = is_gated(c.activation);
  return c.experts * layout.slot_bytes();
}

/// One or two experts get rows, or those in `hit`: all rows go to the first, every third to the others too. The rows
/// are of few different contents in random order, which keeps the reference quick and still tells a row from most
/// others. All other slots are full of NaN.
class CoveringRun {
 public:
  CoveringRun(const QuantConfig& quant, const CoveringCase& c) : CoveringRun(quant, c, hit_experts(c)) {}
  CoveringRun(const QuantConfig& quant, const CoveringCase& c, std::vector<std::int32_t> hit)
      : case_(c), config_(config_of(quant, c)), hit_(std::move(hit)), x_(rows(c)) {
    std::vector<std::vector<std::int32_t>> choices;
    for (std::int64_t r = 0; r < c.rows; ++r) {
      choices.push_back({hit_[0]});
      if (r % 3 == 0) choices.back().insert(choices.back().begin() + r % 2, hit_.begin() + 1, hit_.end());
    }
    batch_ = std::make_unique<TestBatch>(const_matrix_view(x_.data(), c.rows, c.hidden), c.wire, c.experts, choices);
    compute_wanted();
  }

  /// Called with each packed expert that has rows, before it is used.
  using Damage = std::function<void(std::byte* slot, const PackedLayout& layout)>;
  void damage(Damage damage) {
    damage_ = std::move(damage);
    slots_ = nullptr;
  }

  /// Errors in units of what is allowed: up to 1 is fine. A NaN counts as infinite.
  struct Errors {
    double mean = 0.0;   ///< of all values, root mean square
    double worst = 0.0;  ///< of one value
    bool guards_intact = true;
    [[nodiscard]] bool fine() const { return mean <= 1.0 && worst <= 1.0 && guards_intact; }
  };
  Errors errors(const std::string& isa, std::int64_t chunk = 0) {
    config_.isa = isa;
    const auto experts = make_experts("native", config_, context_);
    if (slots_ == nullptr || !(slots_->layout() == experts->packed_layout())) pack(experts->packed_layout());
    const RunResult found = run(*experts, batch_->batch, *slots_, context_, chunk);
    Errors errors = compare(found.rows);
    errors.guards_intact = found.guards_intact;
    return errors;
  }
  void check(const std::vector<std::string>& sets) {
    for (const std::string& isa : sets) {
      const Errors e = errors(isa);
      EXPECT_TRUE(e.fine()) << isa << " " << name(config_.quant) << " " << describe(case_) << ": mean error " << e.mean
                            << ", worst " << e.worst << " of what is allowed"
                            << (e.guards_intact ? "" : ", wrote or left what it should not");
    }
  }

 private:
  static constexpr std::int64_t kContents = 5;
  static std::vector<std::int32_t> hit_experts(const CoveringCase& c) {
    const auto experts = static_cast<std::uint64_t>(c.experts);
    const auto first = static_cast<std::int32_t>(random_bits(3, 0, static_cast<std::uint64_t>(c.rows)) % experts);
    const bool second = c.experts > 1 && c.hidden * c.intermediate < 200000;
    if (!second) return {first};
    return {first, static_cast<std::int32_t>((first + 1 + c.rows % (c.experts - 1)) % c.experts)};
  }
  static std::int64_t content_of(std::int64_t row) {
    return row < kContents ? row : static_cast<std::int64_t>(random_bits(5, 0, static_cast<std::uint64_t>(row)) % 5);
  }
  static std::vector<float> rows(const CoveringCase& c) {
    std::vector<float> x(static_cast<std::size_t>(std::max(c.rows, kContents) * c.hidden));
    const float scale = 3.0F / std::sqrt(static_cast<float>(c.hidden));  // gate and up then vary by about 1
    for (std::int64_t r = 0; r < kContents; ++r)
      for (std::int64_t i = 0; i < c.hidden; ++i)
        x[static_cast<std::size_t>(r * c.hidden + i)] =
            scale * random_normal(17, static_cast<std::uint64_t>(r), static_cast<std::uint64_t>(i));
    for (std::int64_t r = kContents; r < c.rows; ++r)
      std::copy_n(x.data() + content_of(r) * c.hidden, c.hidden, x.data() + r * c.hidden);
    return x;
  }
  void compute_wanted() {
    ReferenceConfig reference;
    reference.shape = config_.shape;
    reference.shape.top_k = 1;
    reference.quant = config_.quant;
    reference.dispatch = case_.wire;
    const auto hits = static_cast<std::int64_t>(hit_.size());
    std::vector<float> x(static_cast<std::size_t>(hits * kContents * case_.hidden));
    OwnedRouting routing(hits * kContents, 1);
    for (std::int64_t h = 0; h < hits; ++h)
      for (std::int64_t r = 0; r < kContents; ++r) {
        const std::int64_t token = h * kContents + r;
        std::copy_n(x_.data() + r * case_.hidden, case_.hidden, x.data() + token * case_.hidden);
        routing.ids()(token, 0) = hit_[static_cast<std::size_t>(h)];
        routing.weights()(token, 0) = 1.0F;
      }
    wanted_ = reference_moe(reference, const_matrix_view(x.data(), hits * kContents, case_.hidden), routing.view(),
                            [&](std::int32_t e) { return WeightPool::of(case_.weights).expert(e, case_); });
  }
  void pack(const PackedLayout& layout) {
    slots_ = nullptr;
    slots_ = std::make_unique<ExpertSlots>(layout, case_.experts);
    std::memset(const_cast<std::byte*>(slots_->slot(0)), 0xff, static_cast<std::size_t>(slots_->bytes()));
    for (const std::int32_t e : hit_) {
      slots_->pack(e, WeightPool::of(case_.weights).expert(e, case_));
      if (damage_) damage_(const_cast<std::byte*>(slots_->slot(e)), layout);
    }
  }
  /// Errors count against the size of all wanted values: in a row of few terms they can cancel to almost nothing.
  [[nodiscard]] Errors compare(const std::vector<float>& found) const {
    double norm = 0.0, error = 0.0, worst = 0.0;
    for (const double value : wanted_) norm += value * value;
    const double size = std::sqrt(norm / static_cast<double>(wanted_.size()));
    const auto& slot = batch_->batch.routing.local_slot;
    for (std::size_t e = 0; e < slot.size(); ++e) {
      const std::int64_t which = std::find(hit_.begin(), hit_.end(), slot[e]) - hit_.begin();
      const std::int64_t content = content_of(batch_->entry_row[e]) + which * kContents;
      const double* wanted = wanted_.data() + content * case_.hidden;
      for (std::int64_t c = 0; c < case_.hidden; ++c) {
        const double value =
            static_cast<double>(found[e * static_cast<std::size_t>(case_.hidden) + static_cast<std::size_t>(c)]);
        const double difference = std::abs(value - wanted[c]);
        error += difference * difference;
        worst = difference <= worst ? worst : difference;  // NaN stays
      }
    }
    const ComputeType compute = config_.quant.compute;
    const double allowed = tolerance(compute) * size;
    // f32 sums differ by rounding everywhere; the others are exact or nearly so, but for a value that rounds the other
    // way between the GEMMs: in int8 that is a step of the largest of the row over 127.
    const double steps = compute == ComputeType::f32 ? 10 : compute == ComputeType::int8 ? 3 : 2;
    const double allowed_worst = steps * allowed;
    const auto number = [](double x) { return std::isnan(x) ? std::numeric_limits<double>::infinity() : x; };
    return {number(std::sqrt(error / static_cast<double>(found.size())) / allowed), number(worst / allowed_worst)};
  }

  CoveringCase case_;
  ExpertsConfig config_;
  std::vector<std::int32_t> hit_;
  std::vector<float> x_;
  std::unique_ptr<TestBatch> batch_;
  std::vector<double> wanted_;  ///< [hit experts][contents][hidden]
  std::unique_ptr<ExpertSlots> slots_;
  Damage damage_;
  TestContext context_;
};

}  // namespace epmoe::test
