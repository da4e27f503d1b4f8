#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "checkpoint/header.hpp"
#include "checkpoint/index.hpp"
#include "checkpoint/text.hpp"
#include "epmoe/checkpoint/safetensors.hpp"

namespace epmoe::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

std::string tensors_note(const std::string& file, const std::vector<std::string>& names) {
  return fmt::format("{}: {} that {} does not place there: {}", file, count_text(names.size(), "tensor"), kIndex,
                     list_text(names));
}

}  // namespace

std::uint32_t Catalog::add_file(const fs::path& path, std::vector<TensorInfo>& found) {
  Header header = read_header(path);
  files_.push_back(path);
  sizes_.push_back(header.file_bytes);
  header_bytes_ += header.header_bytes;
  const auto index = static_cast<std::uint32_t>(files_.size() - 1);
  for (TensorInfo& tensor : header.tensors) tensor.file = index;
  found = std::move(header.tensors);
  return index;
}

void Catalog::read_single(const fs::path& path) {
  std::vector<TensorInfo> found;
  add_file(path, found);
  for (TensorInfo& tensor : found) {
    std::string name = tensor.name;
    tensors_.emplace(std::move(name), std::move(tensor));
  }
}

void Catalog::read_indexed(const fs::path& dir, const fs::path& index_path) {
  std::uint64_t index_bytes = 0;
  const ShardIndex index = read_shard_index(index_path, &index_bytes);
  header_bytes_ += index_bytes;
  refuse_missing_shards(dir, index_path, index);
  for (const auto& [shard, names] : index.shards) {
    std::vector<TensorInfo> found;
    add_file(dir / shard, found);
    std::vector<std::string> unplaced;
    std::size_t placed = 0;
    for (TensorInfo& tensor : found) {
      std::string name = tensor.name;
      if (std::binary_search(names.begin(), names.end(), name)) {
        ++placed;
        tensors_.emplace(std::move(name), std::move(tensor));
      } else {
        unplaced.push_back(in_quotes(name));
      }
    }
    if (placed != names.size()) {
      std::vector<std::string> missing;
      for (const std::string& name : names)
        if (find(name) == nullptr) missing.push_back(in_quotes(name));
      fail(dir / shard, fmt::format("lacks {} that {} places there: {}", count_text(missing.size(), "tensor"), kIndex,
                                    list_text(missing)));
    }
    if (!unplaced.empty()) notes_.push_back(tensors_note(shard, unplaced));
  }
  for (const std::string& stray : stray_shards(dir, index))
    notes_.push_back(fmt::format("{}: not named by {}, ignored", stray, kIndex));
}

Catalog Catalog::read(const fs::path& path) {
  Catalog catalog;
  std::error_code error;
  if (!fs::is_directory(path, error)) {  // reading says why if there is nothing
    catalog.read_single(path);
    return catalog;
  }
  const std::vector<std::string> present = safetensors_files(path);
  const bool single = std::find(present.begin(), present.end(), kSingle) != present.end();
  // A single file wins over an index, as in Hugging Face's own loader.
  if (!single && fs::exists(path / kIndex, error)) {
    catalog.read_indexed(path, path / kIndex);
  } else if (single || present.size() == 1) {
    const std::string used = single ? kSingle : present.front();
    catalog.read_single(path / used);
    for (const std::string& name : present)
      if (name != used) catalog.notes_.push_back(fmt::format("{}: ignored, since there is a {}", name, used));
  } else if (present.empty()) {
    const bool pickled =
        fs::exists(path / "pytorch_model.bin", error) || fs::exists(path / "pytorch_model.bin.index.json", error);
    fail(path, fmt::format("no {}, no {} and no other *.safetensors{}", kSingle, kIndex,
                           pickled ? "; pytorch_model.bin is not read, convert it to safetensors" : ""));
  } else {
    fail(path, fmt::format("{} ({}) but no {} to say which tensors are where",
                           count_text(present.size(), "safetensors file"), list_text(present), kIndex));
  }
  return catalog;
}

const TensorInfo* Catalog::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const TensorInfo& Catalog::at(const std::string& name) const {
  if (const TensorInfo* tensor = find(name)) return *tensor;
  const fs::path where = files_.empty()       ? fs::path("checkpoint")
                         : files_.size() == 1 ? files_[0]
                                              : files_[0].parent_path();
  fail(where, name, fmt::format("missing; {} present", count_text(tensors_.size(), "tensor")));
}

}  // namespace epmoe::checkpoint
