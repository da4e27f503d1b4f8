#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "epmoe/core/dtype.hpp"
#include "epmoe/core/moe_config.hpp"
#include "epmoe/core/quant_config.hpp"
#include "epmoe/core/random.hpp"

/// Which cases to run where all combinations would take days: every pair of values of two factors stands in a case, or
/// every value in some.
namespace epmoe::test {

struct CoveringCase {
  std::int64_t rows = 0;  ///< of one expert
  std::int64_t hidden = 0, intermediate = 0;
  std::int64_t experts = 0;  ///< of the layer, most of them without rows
  Activation activation = Activation::silu;
  DispatchType wire = DispatchType::f32;
  DType weights = DType::f32;
  bool biases = false;
};

inline std::vector<std::int64_t> covering_rows() {
  std::vector<std::int64_t> rows;
  for (std::int64_t m = 1; m <= 17; ++m) rows.push_back(m);
  rows.insert(rows.end(), {31, 32, 33, 63, 64, 65, 127, 128, 129, 130});
  return rows;
}
inline constexpr std::int64_t kCoveringSizes[] = {1, 7, 31, 32, 33, 80, 96, 176, 511, 704, 1407, 2880};
inline constexpr std::int64_t kCoveringExperts[] = {1, 8, 40, 60, 128, 160, 256, 384};
inline constexpr DispatchType kCoveringWires[] = {DispatchType::f32, DispatchType::f16, DispatchType::bf16,
                                                  DispatchType::int8};
inline constexpr DType kCoveringWeights[] = {DType::f32, DType::f16, DType::bf16};

/// The factors of a case, as indices into the lists above.
class CoveringFactors {
 public:
  static constexpr std::size_t kFactors = 8;
  using Indices = std::array<std::size_t, kFactors>;
  CoveringFactors() : rows_(covering_rows()), activations_(epmoe::activations()) {}
  [[nodiscard]] std::size_t values(std::size_t factor) const {
    const Indices counts{
        rows_.size(),        std::size(kCoveringSizes), std::size(kCoveringSizes),   std::size(kCoveringExperts),
        activations_.size(), std::size(kCoveringWires), std::size(kCoveringWeights), 2};
    return counts[factor];
  }
  [[nodiscard]] CoveringCase at(const Indices& i) const {
    return {rows_[i[0]],        kCoveringSizes[i[1]], kCoveringSizes[i[2]],   kCoveringExperts[i[3]],
            activations_[i[4]], kCoveringWires[i[5]], kCoveringWeights[i[6]], i[7] == 1};
  }

 private:
  std::vector<std::int64_t> rows_;
  std::vector<Activation> activations_;
};

/// What a case costs, in any unit; infinity for one that must not be taken. The cheapest values of all factors but two
/// must make a case that may be taken.
using CoveringCost = std::function<double(const CoveringCase&)>;

/// Draws cases until every pair of values has been in one. A case is the best of some random ones around a pair that
/// is missing: new pairs for the cost.
class CoveringSet {
 public:
  using Indices = CoveringFactors::Indices;
  CoveringSet(std::uint64_t seed, const CoveringCost& cost) : seed_(seed), cost_(cost) {
    for (std::size_t f = 0; f < kFactors; ++f) {
      first_[f] = total_;
      total_ += factors_.values(f);
    }
    covered_.assign(total_ * total_, false);
    for (std::size_t f = 0; f < kFactors; ++f)
      for (std::size_t g = f + 1; g < kFactors; ++g)
        for (std::size_t a = 0; a < factors_.values(f); ++a)
          for (std::size_t b = 0; b < factors_.values(g); ++b) {
            if (covered_[pair(f, a, g, b)]) continue;
            const Indices chosen = best_around(f, a, g, b);
            cover(chosen);
            cases_.push_back(factors_.at(chosen));
          }
  }
  [[nodiscard]] const std::vector<CoveringCase>& cases() const { return cases_; }

 private:
  static constexpr std::size_t kFactors = CoveringFactors::kFactors;
  static constexpr int kCandidates = 24;

  std::size_t draw(std::size_t below) { return random_bits(seed_, 1, counter_++) % below; }
  [[nodiscard]] std::size_t pair(std::size_t f, std::size_t a, std::size_t g, std::size_t b) const {
    return (first_[f] + a) * total_ + first_[g] + b;
  }
  [[nodiscard]] std::int64_t new_pairs(const Indices& i) const {
    std::int64_t count = 0;
    for (std::size_t f = 0; f < kFactors; ++f)
      for (std::size_t g = f + 1; g < kFactors; ++g) count += covered_[pair(f, i[f], g, i[g])] ? 0 : 1;
    return count;
  }
  void cover(const Indices& i) {
    for (std::size_t f = 0; f < kFactors; ++f)
      for (std::size_t g = f + 1; g < kFactors; ++g) covered_[pair(f, i[f], g, i[g])] = true;
  }
  Indices best_around(std::size_t f, std::size_t a, std::size_t g, std::size_t b) {
    Indices best{};  // the cheapest values but for the pair: possible if anything is
    best[f] = a;
    best[g] = b;
    double best_value = 0.0;
    for (int candidate = 0; candidate < kCandidates; ++candidate) {
      Indices i{};
      for (std::size_t h = 0; h < kFactors; ++h) i[h] = draw(factors_.values(h));
      i[f] = a;
      i[g] = b;
      const double cost = cost_(factors_.at(i));
      const double value = static_cast<double>(new_pairs(i)) / cost;
      if (std::isfinite(cost) && value > best_value) {
        best = i;
        best_value = value;
      }
    }
    return best;
  }

  std::uint64_t seed_, counter_ = 0;
  CoveringCost cost_;
  CoveringFactors factors_;
  Indices first_{};
  std::size_t total_ = 0;
  std::vector<bool> covered_;
  std::vector<CoveringCase> cases_;
};

/// Cases such that every value is in at least `times` of them: about `times` for each value of the longest factor.
inline std::vector<CoveringCase> covering_values(std::uint64_t seed, int times, const CoveringCost& cost) {
  const CoveringFactors factors;
  std::vector<CoveringCase> cases;
  std::uint64_t counter = 0;
  const auto draw = [&](std::size_t below) { return random_bits(seed, 2, counter++) % below; };
  std::array<std::vector<int>, CoveringFactors::kFactors> found;
  for (std::size_t f = 0; f < found.size(); ++f) found[f].assign(factors.values(f), 0);
  for (std::size_t f = 0; f < found.size(); ++f)
    for (std::size_t value = 0; value < found[f].size(); ++value)
      while (found[f][value] < times) {
        CoveringFactors::Indices i{};  // the cheapest, should no drawn case do
        i[f] = value;
        for (int attempt = 0; attempt < 50; ++attempt) {
          CoveringFactors::Indices drawn{};
          for (std::size_t g = 0; g < found.size(); ++g) {
            const std::size_t a = draw(found[g].size()), b = draw(found[g].size());
            drawn[g] = found[g][a] <= found[g][b] ? a : b;
          }
          drawn[f] = value;
          if (!std::isfinite(cost(factors.at(drawn)))) continue;
          i = drawn;
          break;
        }
        for (std::size_t g = 0; g < found.size(); ++g) ++found[g][i[g]];
        cases.push_back(factors.at(i));
      }
  return cases;
}

}  // namespace epmoe::test
