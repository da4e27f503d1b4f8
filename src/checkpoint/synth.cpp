#include "epmoe/checkpoint/synth.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/index.hpp"
#include "checkpoint/safetensors_writer.hpp"
#include "checkpoint/synth_layout.hpp"
#include "checkpoint/text.hpp"
#include "epmoe/checkpoint/family.hpp"
#include "epmoe/core/error.hpp"
#include "epmoe/core/random.hpp"

namespace epmoe::checkpoint {
namespace {

namespace fs = std::filesystem;

std::uint64_t bytes_of(const TensorSpec& spec) {
  std::int64_t bytes = size_bytes(spec.dtype);
  for (const std::int64_t extent : spec.shape) bytes *= extent;
  return static_cast<std::uint64_t>(bytes);
}

/// FNV-1a, so that a tensor's values do not depend on which other tensors there are.
std::uint64_t seed_of(std::uint64_t seed, const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash ^ (seed * 0x9e3779b97f4a7c15ULL);
}

/// Four numbers of 16 random bits each come from one draw: enough for weights, and four times as fast.
class RandomRow {
 public:
  RandomRow(std::uint64_t seed, std::int64_t row, float amplitude)
      : seed_(seed), row_(static_cast<std::uint64_t>(row)), amplitude_(amplitude) {}
  float operator()(std::int64_t column) {
    const auto c = static_cast<std::uint64_t>(column);
    if (c % 4 == 0) bits_ = random_bits(seed_, row_, c / 4);
    const auto level = static_cast<float>((bits_ >> (16 * (c % 4))) & 0xffffU);
    return ((level + 0.5F) * 0x1p-15F - 1.0F) * amplitude_;
  }

 private:
  std::uint64_t seed_, row_, bits_ = 0;
  float amplitude_;
};

void produce_tensor(const TensorSpec& spec, std::uint64_t seed, const ByteSink& sink) {
  const std::int64_t cols = spec.shape.back();
  std::int64_t rows = 1;
  for (std::size_t d = 0; d + 1 < spec.shape.size(); ++d) rows *= spec.shape[d];
  // A router bias must be small beside the scores (0 to 1) that it corrects; a weight has variance 1 / fan-in.
  const float amplitude = spec.shape.size() == 1 ? 0.05F : std::sqrt(3.0F / static_cast<float>(cols));
  std::vector<float> values(static_cast<std::size_t>(cols));
  std::vector<std::byte> row_bytes(static_cast<std::size_t>(cols * size_bytes(spec.dtype)));
  const MatrixView view{row_bytes.data(), spec.dtype, 1, cols, cols, MemorySpace::host};
  for (std::int64_t row = 0; row < rows; ++row) {
    RandomRow random(seed_of(seed, spec.name), row, amplitude);
    for (std::int64_t c = 0; c < cols; ++c) values[static_cast<std::size_t>(c)] = random(c);
    write_row(view, 0, values.data());
    sink(row_bytes);
  }
}

/// Consecutive tensors, as many as fit.
std::vector<std::span<const TensorSpec>> cut_into_shards(std::span<const TensorSpec> tensors, std::uint64_t max_bytes) {
  std::vector<std::span<const TensorSpec>> shards;
  std::size_t first = 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t size = bytes_of(tensors[i]);
    if (i > first && bytes + size > max_bytes) {
      shards.push_back(tensors.subspan(first, i - first));
      first = i;
      bytes = 0;
    }
    bytes += size;
  }
  shards.push_back(tensors.subspan(first));
  return shards;
}

/// Files of an unfinished checkpoint, removed again unless it is kept.
class Cleanup {
 public:
  Cleanup() = default;
  Cleanup(const Cleanup&) = delete;
  Cleanup& operator=(const Cleanup&) = delete;
  ~Cleanup() {
    std::error_code ignored;
    for (auto path = paths_.rbegin(); path != paths_.rend(); ++path) fs::remove(*path, ignored);
  }
  void add(const fs::path& path) { paths_.push_back(path); }
  void keep() { paths_.clear(); }

 private:
  std::vector<fs::path> paths_;
};

void prepare_directory(const fs::path& dir, Cleanup& cleanup) {
  std::error_code error;
  if (fs::create_directories(dir, error)) cleanup.add(dir);
  if (error) fail(dir, fmt::format("cannot make the directory: {}", error.message()));
  std::vector<std::string> there = safetensors_files(dir);
  for (const char* name : {"config.json", "model.safetensors.index.json"})
    if (fs::exists(dir / name, error)) there.emplace_back(name);
  if (!there.empty())
    fail(dir, fmt::format("already holds a checkpoint ({}), wanted a directory without one", list_text(there)));
}

void write_text(const fs::path& path, const std::string& text) {
  write_atomically(path,
                   [&](const ByteSink& sink) { sink({reinterpret_cast<const std::byte*>(text.data()), text.size()}); });
}

std::string index_text(const std::vector<std::span<const TensorSpec>>& shards, const std::vector<std::string>& files,
                       std::uint64_t total) {
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = total;
  auto& map = index["weight_map"];
  for (std::size_t s = 0; s < shards.size(); ++s)
    for (const TensorSpec& spec : shards[s]) map[spec.name] = files[s];
  return index.dump(2) + "\n";
}

void require_supported(const ModelShape& shape) {
  const auto built = family_names();
  if (std::find(built.begin(), built.end(), shape.family) == built.end())
    throw ConfigError(fmt::format("model {}: its family {} is not supported yet; supported: {}", shape.name,
                                  shape.family, fmt::join(built, ", ")));
}

}  // namespace

void synthesize(const std::string& model_name, const fs::path& dir, double scale, DType dtype, std::uint64_t seed,
                const SynthProgress& progress) {
  const ModelShape& shape = find_model(model_name);
  require_supported(shape);
  SynthOptions options;
  options.dtype = dtype;
  options.seed = seed;
  synthesize(scaled(shape, scale), dir, options, progress);
}

void synthesize(const ModelShape& shape, const fs::path& dir, const SynthOptions& options,
                const SynthProgress& progress) {
  require_supported(shape);
  if (options.dtype != DType::f32 && options.dtype != DType::f16 && options.dtype != DType::bf16)
    throw ConfigError(fmt::format("dtype is {}, wanted f32, f16 or bf16", name(options.dtype)));
  const std::vector<TensorSpec> tensors = synth_tensors(shape, options);
  std::uint64_t total = 0, done = 0;
  for (const TensorSpec& spec : tensors) total += bytes_of(spec);

  Cleanup cleanup;
  prepare_directory(dir, cleanup);
  const auto shards = cut_into_shards(tensors, options.max_shard_bytes);
  std::vector<std::string> files;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    files.push_back(shards.size() == 1 ? "model.safetensors"
                                       : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size()));
    cleanup.add(dir / files.back());
    stream_safetensors(dir / files.back(), shards[s], [&](std::size_t i, const ByteSink& sink) {
      produce_tensor(shards[s][i], options.seed, sink);
      done += bytes_of(shards[s][i]);
      if (progress) progress(done, total);
    });
  }
  if (shards.size() > 1) {
    cleanup.add(dir / "model.safetensors.index.json");
    write_text(dir / "model.safetensors.index.json", index_text(shards, files, total));
  }
  cleanup.add(dir / "config.json");
  write_text(dir / "config.json", synth_config(shape, options.dtype));
  cleanup.keep();
}

}  // namespace epmoe::checkpoint
