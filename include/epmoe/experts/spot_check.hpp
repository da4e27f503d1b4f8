#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "epmoe/experts/experts.hpp"
#include "epmoe/quantize/expert_weights.hpp"

/// Compares some of an experts stage's results with the f64 reference that quantises alike, expert by expert. The
/// reference is computed once and serves every back end that gets the same rows. Local.
namespace epmoe {

/// 64 columns (fewer at the end of a row) of the result of one (row, expert) pair.
struct SpotBlock {
  std::int32_t expert = 0;
  std::int64_t row = 0;           ///< of the batch
  std::int64_t entry = 0;         ///< row of the output
  std::int64_t first_column = 0;  ///< multiple of 64
  std::vector<double> wanted;     ///< [columns]
  double row_rms = 0.0;           ///< of the whole wanted row: what errors are relative to
};

struct SpotDifference {
  std::int32_t expert = 0;
  std::int64_t row = 0, column = 0;
  double found = 0.0, wanted = 0.0;
};
/// "expert 3, row 12, column 77: found 0.25, wanted 0.5".
std::string describe(const SpotDifference& difference);

struct SpotCheckResult {
  std::int64_t blocks = 0;                  ///< compared
  std::vector<SpotDifference> differences;  ///< the worst column of every block that is too far off
};

class SpotCheck {
 public:
  /// An expert's weights before packing. Called on the workers of the executor; what it returns has to stay valid
  /// until the same worker calls it again.
  using Source = std::function<ExpertWeights(std::int32_t expert, int worker)>;
  /// Draws `blocks_per_expert` random (row, block) pairs for every expert that has rows in `batch` and computes them.
  SpotCheck(const ExpertsConfig& config, const ExpertBatch& batch, const Source& weights,
            std::int64_t blocks_per_expert, std::uint64_t seed, const ExecutionContext& context);
  /// `output` [entries, hidden] f32 of the whole batch, in row order. A block is too far off where its error is above
  /// 4 x tolerance(compute), relative to its row, or where it is not finite and the reference is.
  [[nodiscard]] SpotCheckResult compare(ConstMatrixView output) const;
  [[nodiscard]] const std::vector<SpotBlock>& blocks() const { return blocks_; }

 private:
  double allowed_;
  std::vector<SpotBlock> blocks_;
};

}  // namespace epmoe
