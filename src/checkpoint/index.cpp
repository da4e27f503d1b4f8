#include "checkpoint/index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "checkpoint/file.hpp"
#include "checkpoint/header.hpp"
#include "checkpoint/json_text.hpp"
#include "checkpoint/text.hpp"

namespace epmoe::checkpoint {
namespace {

namespace fs = std::filesystem;

bool leaves_directory(const std::string& name) {
  return name.empty() || name == "." || name.find("..") != std::string::npos ||
         name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos;
}

/// Names of the tensors in `files` whose headers can be read.
std::unordered_set<std::string> tensors_in(const fs::path& dir, const std::vector<std::string>& files) {
  std::unordered_set<std::string> names;
  for (const std::string& file : files) {
    try {
      for (const TensorInfo& tensor : read_header(dir / file).tensors) names.insert(tensor.name);
    } catch (const CheckpointError&) {  // only asked in order to explain another error
    }
  }
  return names;
}

}  // namespace

ShardIndex read_shard_index(const fs::path& path, std::uint64_t* bytes) {
  const std::string text = read_text(path);
  *bytes = text.size();
  const auto json = parse_json(text, path);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object()) fail(path, "has no object \"weight_map\"");
  ShardIndex index;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string())
      fail(path, tensor, fmt::format("is placed in {}, wanted a file name", in_quotes(file.dump())));
    const auto& name = file.get_ref<const std::string&>();
    if (leaves_directory(name))
      fail(path, tensor,
           fmt::format("is placed in {}, wanted the name of a file in the same directory", in_quotes(name)));
    index.shards[name].push_back(tensor);
  }
  if (index.shards.empty()) fail(path, "\"weight_map\" names no tensor");
  for (auto& [name, tensors] : index.shards) std::sort(tensors.begin(), tensors.end());
  return index;
}

std::vector<std::string> safetensors_files(const fs::path& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(dir, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == ".safetensors") names.push_back(entry->path().filename().string());
  if (error) fail(dir, fmt::format("cannot list: {}", error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> stray_shards(const fs::path& dir, const ShardIndex& index) {
  std::vector<std::string> names = safetensors_files(dir);
  std::erase_if(names, [&](const std::string& name) { return index.shards.contains(name); });
  return names;
}

void refuse_missing_shards(const fs::path& dir, const fs::path& index_path, const ShardIndex& index) {
  std::vector<std::string> missing;
  std::vector<std::string> lost;
  for (const auto& [name, tensors] : index.shards) {
    std::error_code error;
    if (fs::exists(dir / name, error)) continue;
    missing.push_back(name);
    lost.insert(lost.end(), tensors.begin(), tensors.end());
  }
  if (missing.empty()) return;
  std::string what = fmt::format("{} of {} are missing: {}; they hold {}, the first {}", missing.size(),
                                 count_text(index.shards.size(), "shard"), list_text(missing),
                                 count_text(lost.size(), "tensor"), in_quotes(lost.front()));
  const std::vector<std::string> strays = stray_shards(dir, index);
  if (!strays.empty()) {
    const auto held = tensors_in(dir, strays);
    std::vector<std::string> nowhere;
    for (const std::string& name : lost)
      if (!held.contains(name)) nowhere.push_back(in_quotes(name));
    what += fmt::format(". The directory has {} that the index does not name ({}), ", count_text(strays.size(), "file"),
                        list_text(strays));
    what +=
        nowhere.empty()
            ? std::string("which hold all of these tensors: the index is stale, write one for the files that are there")
            : fmt::format("which lack {} of these tensors, the first {}", nowhere.size(), nowhere.front());
  }
  fail(index_path, what);
}

}  // namespace epmoe::checkpoint
