#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "epmoe/checkpoint/family.hpp"
#include "epmoe/comm/communicator.hpp"
#include "epmoe/runtime/moe_layer.hpp"

namespace epmoe {

/// A checkpoint's headers on every rank; rank 0 read them once.
struct LoadedModel {
  std::shared_ptr<const checkpoint::Catalog> catalog;
  checkpoint::MoeModel model;
  std::uint64_t header_bytes = 0;  ///< read by rank 0; 0 on the others
};

/// Collective. Rank 0 reads config.json and the shards' headers and broadcasts them. A fault is the same
/// CheckpointError on all ranks.
LoadedModel load_model(const comm::Communicator& comm, const std::filesystem::path& directory,
                       const std::string& family, const ExecutionContext& context);

/// Where a layer's tensors come from; views live as long as the reader. Local.
LayerSource layer_source(checkpoint::TensorReader& reader, const checkpoint::LayerTensors& tensors);

}  // namespace epmoe
