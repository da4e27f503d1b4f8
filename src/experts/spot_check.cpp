#include "epmoe/experts/spot_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "epmoe/core/random.hpp"
#include "epmoe/quantize/row_format.hpp"
#include "experts/reference_ffn.hpp"

namespace epmoe {
namespace {

constexpr std::int64_t kBlockColumns = 64;

/// The row as the first GEMM multiplies it.
void read_input(const ExpertsConfig& config, const ExpertBatch& batch, const RowLocator& rows, std::int64_t row,
                double* out) {
  const bool int8_rows = batch.type == DispatchType::int8;
  std::vector<float> values(static_cast<std::size_t>(batch.hidden));
  decode_hidden(batch.type, rows.row(row), int8_rows ? rows.scale(row) : 1.0F, batch.hidden, values.data());
  const bool passed_through = int8_rows && config.quant.compute == ComputeType::int8;
  if (!passed_through) reference::round_activations(config.quant.compute, config.quant.a1, batch.hidden, values.data());
  std::copy(values.begin(), values.end(), out);
}

/// Blocks of the same row follow each other.
std::vector<SpotBlock> draw_blocks(const ExpertIndex& index, std::int32_t expert, std::int64_t count,
                                   std::int64_t hidden, std::uint64_t seed) {
  const auto e = static_cast<std::size_t>(expert);
  const auto begin = static_cast<std::uint64_t>(index.expert_begin[e]);
  const auto entries = static_cast<std::uint64_t>(index.expert_begin[e + 1]) - begin;
  const auto column_blocks = static_cast<std::uint64_t>(ceil_div(hidden, kBlockColumns));
  std::vector<SpotBlock> blocks;
  for (std::int64_t b = 0; b < count; ++b) {
    const auto bits = [&](std::uint64_t which) {
      return random_bits(seed, static_cast<std::uint64_t>(expert), 2 * static_cast<std::uint64_t>(b) + which);
    };
    const auto i = static_cast<std::size_t>(begin + bits(0) % entries);
    SpotBlock block;
    block.expert = expert;
    block.row = index.row[i];
    block.entry = index.entry[i];
    block.first_column = static_cast<std::int64_t>(bits(1) % column_blocks) * kBlockColumns;
    blocks.push_back(std::move(block));
  }
  std::stable_sort(blocks.begin(), blocks.end(), [](const auto& a, const auto& b) { return a.entry < b.entry; });
  return blocks;
}

double rms(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

/// Each row goes through the expert once.
void compute_blocks(const ExpertsConfig& config, const ExpertBatch& batch, const RowLocator& rows,
                    const reference::Expert& expert, std::vector<SpotBlock>& blocks) {
  std::vector<double> in(static_cast<std::size_t>(batch.hidden)), out(in.size());
  double row_rms = 0.0;
  std::int64_t entry = -1;
  for (SpotBlock& block : blocks) {
    if (block.entry != entry) {
      read_input(config, batch, rows, block.row, in.data());
      reference::ffn(expert, config.shape.activation, &config.quant, 1, in.data(), out.data());
      row_rms = rms(out);
      entry = block.entry;
    }
    const double* columns = out.data() + block.first_column;
    block.wanted.assign(columns, columns + std::min(kBlockColumns, batch.hidden - block.first_column));
    block.row_rms = row_rms;
  }
}

}  // namespace

std::string describe(const SpotDifference& d) {
  return fmt::format("expert {}, row {}, column {}: found {:.6g}, wanted {:.6g}", d.expert, d.row, d.column, d.found,
                     d.wanted);
}

SpotCheck::SpotCheck(const ExpertsConfig& config, const ExpertBatch& batch, const Source& weights,
                     std::int64_t blocks_per_expert, std::uint64_t seed, const ExecutionContext& context)
    : allowed_(4.0 * tolerance(config.quant.compute)) {
  const ExpertIndex index = index_by_expert(batch, 0, batch.rows());
  const RowLocator rows(batch);
  std::vector<std::int32_t> hit;
  for (std::size_t e = 0; e + 1 < index.expert_begin.size(); ++e)
    if (index.expert_begin[e + 1] > index.expert_begin[e]) hit.push_back(static_cast<std::int32_t>(e));
  std::vector<std::vector<SpotBlock>> parts(hit.size());
  context.executor->run(
      static_cast<std::int64_t>(hit.size()),
      [&](std::int64_t task, int worker) {
        const std::int32_t e = hit[static_cast<std::size_t>(task)];
        auto& blocks = parts[static_cast<std::size_t>(task)];
        blocks = draw_blocks(index, e, blocks_per_expert, batch.hidden, seed);
        compute_blocks(config, batch, rows, reference::round_expert(weights(e, worker), &config.quant), blocks);
      },
      nullptr);
  for (auto& part : parts) std::move(part.begin(), part.end(), std::back_inserter(blocks_));
}

SpotCheckResult SpotCheck::compare(ConstMatrixView output) const {
  const auto values = output.as<const float, Entry, Hidden>();
  SpotCheckResult result;
  for (const SpotBlock& block : blocks_) {
    ++result.blocks;
    double sum = 0.0, worst = -1.0;
    SpotDifference difference{block.expert, block.row, block.first_column, 0.0, 0.0};
    for (std::size_t c = 0; c < block.wanted.size(); ++c) {
      const auto found = static_cast<double>(values(block.entry, block.first_column + static_cast<std::int64_t>(c)));
      const double error = std::abs(found - block.wanted[c]);
      const bool worse = !(error <= worst);  // NaN is worse than any number
      sum += error * error;
      if (!worse || std::isnan(worst)) continue;
      worst = error;
      difference.column = block.first_column + static_cast<std::int64_t>(c);
      difference.found = found;
      difference.wanted = block.wanted[c];
    }
    const double error = std::sqrt(sum / static_cast<double>(block.wanted.size()));
    if (!(error <= allowed_ * block.row_rms)) result.differences.push_back(difference);
  }
  return result;
}

}  // namespace epmoe
