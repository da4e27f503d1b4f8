#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "epmoe/checkpoint/safetensors.hpp"

namespace epmoe::checkpoint {

/// The header of one safetensors file.
struct Header {
  std::uint64_t file_bytes = 0;
  std::uint64_t header_bytes = 0;   ///< length field included: where the data starts
  std::vector<TensorInfo> tensors;  ///< by place in the file; they cover the data without hole or overlap
};
/// Reads and checks it by the rules of the reference parser. Throws CheckpointError naming file and tensor.
Header read_header(const std::filesystem::path& path);

}  // namespace epmoe::checkpoint
