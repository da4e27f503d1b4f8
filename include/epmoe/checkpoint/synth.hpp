#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "epmoe/checkpoint/model_table.hpp"
#include "epmoe/core/dtype.hpp"

/// Random checkpoints in the layout of real releases: config.json, and the tensors of the MoE layers in
/// model.safetensors or in shards with an index. Local, single-threaded.
namespace epmoe::checkpoint {

/// Called as bytes are written.
using SynthProgress = std::function<void(std::uint64_t done, std::uint64_t of)>;

/// Weights are uniform with variance 1 / fan-in and depend on (seed, tensor name, place) only. Tensors are produced in
/// pieces, so memory does not grow with the model. Throws ConfigError for an unknown or not yet supported model, scale
/// or dtype (f32, f16, bf16); CheckpointError if `dir` already holds a checkpoint or cannot be written, in which case
/// what was written so far is removed.
void synthesize(const std::string& model_name, const std::filesystem::path& dir, double scale, DType dtype,
                std::uint64_t seed, const SynthProgress& progress = {});

struct SynthOptions {
  DType dtype = DType::bf16;
  std::uint64_t seed = 0;
  std::uint64_t max_shard_bytes = std::uint64_t{4} << 30U;  ///< a larger tensor gets a shard of its own
  bool fused = false;  ///< experts.gate_up_proj and down_proj as transformers 5 saves
};
/// The same for any shape of a supported family.
void synthesize(const ModelShape& shape, const std::filesystem::path& dir, const SynthOptions& options,
                const SynthProgress& progress = {});

}  // namespace epmoe::checkpoint
