#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "epmoe/core/dtype.hpp"

namespace epmoe::checkpoint {

/// What a tensor is, without its data.
struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
};
using ByteSink = std::function<void(std::span<const std::byte>)>;

/// Writes a safetensors file without ever holding a whole tensor: `produce(i, sink)` is asked once for each of `specs`,
/// in file order, and gives its bytes in pieces. The file appears under `path` when it is complete, or not at all.
void stream_safetensors(const std::filesystem::path& path, std::span<const TensorSpec> specs,
                        const std::function<void(std::size_t, const ByteSink&)>& produce);
/// The same for any file: `produce` gives the bytes.
void write_atomically(const std::filesystem::path& path, const std::function<void(const ByteSink&)>& produce);

}  // namespace epmoe::checkpoint
