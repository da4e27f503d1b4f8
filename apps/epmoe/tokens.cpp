#include "tokens.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <numeric>

#include "epmoe/checkpoint/safetensors.hpp"
#include "epmoe/runtime/random_model.hpp"

namespace epmoe::cli {
namespace {

constexpr std::int64_t kDefaultTokens = 256;
constexpr const char* kTensor = "hidden_states";

/// Collective: the header of --input on every rank, checked on rank 0.
checkpoint::Catalog read_input_header(Job& job, const std::string& path, std::int64_t hidden) {
  std::vector<std::byte> bytes;
  job.only_first(
      [&] {
        const auto catalog = checkpoint::Catalog::read(path);
        const auto& tensor = catalog.at(kTensor);
        if (tensor.shape.size() != 2 || tensor.shape[1] != hidden)
          throw InputError(
              fmt::format("{}: {} is [{}], [tokens, {}] wanted", path, kTensor, fmt::join(tensor.shape, ", "), hidden));
        if (tensor.dtype != "F32" && tensor.dtype != "F16" && tensor.dtype != "BF16")
          throw InputError(fmt::format("{}: {} is {}, F32, F16 or BF16 wanted", path, kTensor, tensor.dtype));
        bytes = catalog.serialize();
      },
      "reading the input's header");
  return checkpoint::Catalog::deserialize(
      job.world().broadcast(std::move(bytes), 0, job.context(), "broadcasting the input's header"));
}

}  // namespace

std::vector<std::int64_t> split_tokens(std::int64_t tokens, int ranks, const std::vector<std::int64_t>& asked) {
  if (asked.empty()) {
    std::vector<std::int64_t> per_rank(static_cast<std::size_t>(ranks), tokens / ranks);
    for (std::int64_t r = 0; r < tokens % ranks; ++r) ++per_rank[static_cast<std::size_t>(r)];
    return per_rank;
  }
  if (static_cast<int>(asked.size()) != ranks)
    throw ConfigError(fmt::format("--tokens-per-rank {}: {} counts found, one for each of {} ranks wanted",
                                  fmt::join(asked, ","), asked.size(), ranks));
  const auto sum = std::accumulate(asked.begin(), asked.end(), std::int64_t{0});
  if (sum != tokens)
    throw ConfigError(
        fmt::format("--tokens-per-rank {}: sum is {}, {} tokens wanted", fmt::join(asked, ","), sum, tokens));
  return asked;
}

Tokens load_tokens(Job& job, const RunOptions& options, std::int64_t hidden) {
  Tokens tokens;
  std::optional<checkpoint::Catalog> catalog;
  if (!options.input.empty()) {
    catalog = read_input_header(job, options.input, hidden);
    tokens.total = catalog->at(kTensor).shape[0];
  } else if (options.tokens) {
    tokens.total = *options.tokens;
  } else if (!options.tokens_per_rank.empty()) {
    tokens.total = std::accumulate(options.tokens_per_rank.begin(), options.tokens_per_rank.end(), std::int64_t{0});
  } else {
    tokens.total = kDefaultTokens;
  }
  tokens.per_rank = split_tokens(tokens.total, job.size(), options.tokens_per_rank);
  tokens.first = std::accumulate(tokens.per_rank.begin(), tokens.per_rank.begin() + job.rank(), std::int64_t{0});
  const auto mine = tokens.per_rank[static_cast<std::size_t>(job.rank())];

  job.together(
      [&] {
        if (!catalog) {
          tokens.memory = AlignedBuffer(mine * hidden * size_bytes(DType::f32));
          const MatrixView x{tokens.memory.data(), DType::f32, mine, hidden, hidden, MemorySpace::host};
          random_hidden_states(options.seed, tokens.first, x);
          tokens.x = x;
          return;
        }
        // A copy: rows in the map may be unaligned, and only this rank's pages are touched.
        checkpoint::TensorReader reader(*catalog);
        const auto rows = reader.matrix(kTensor, tokens.total, hidden).slice(tokens.first, mine);
        tokens.memory = AlignedBuffer(mine * hidden * size_bytes(rows.dtype));
        if (mine > 0) std::memcpy(tokens.memory.data(), rows.data, static_cast<std::size_t>(tokens.memory.size()));
        tokens.x = {tokens.memory.data(), rows.dtype, mine, hidden, hidden, MemorySpace::host};
      },
      "reading the input");
  return tokens;
}

}  // namespace epmoe::cli
