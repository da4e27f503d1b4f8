#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace epmoe::checkpoint {

/// model.safetensors.index.json: shard file name → names of its tensors, sorted.
struct ShardIndex {
  std::map<std::string, std::vector<std::string>> shards;
};
/// Throws CheckpointError; file names that leave the directory are refused. `bytes` receives the file's size.
ShardIndex read_shard_index(const std::filesystem::path& path, std::uint64_t* bytes);

/// Names of *.safetensors in `dir`, sorted.
std::vector<std::string> safetensors_files(const std::filesystem::path& dir);
/// Those that the index does not name.
std::vector<std::string> stray_shards(const std::filesystem::path& dir, const ShardIndex& index);
/// Throws if a shard is not there, saying which, what they held, and whether other files of the directory hold it: an
/// index left over from another sharding looks just like an incomplete download.
void refuse_missing_shards(const std::filesystem::path& dir, const std::filesystem::path& index_path,
                           const ShardIndex& index);

}  // namespace epmoe::checkpoint
