#pragma once
#include <string>
#include <vector>

#include "checkpoint/safetensors_writer.hpp"
#include "epmoe/checkpoint/synth.hpp"

namespace epmoe::checkpoint {

/// Text of config.json for `shape`.
std::string synth_config(const ModelShape& shape, DType dtype);
/// All tensors of the MoE layers, in the order in which a release would store them.
std::vector<TensorSpec> synth_tensors(const ModelShape& shape, const SynthOptions& options);

}  // namespace epmoe::checkpoint
