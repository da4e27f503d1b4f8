#include "run_output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "epmoe/checkpoint/safetensors.hpp"

namespace epmoe::cli {
namespace {

/// A dense copy of a view's rows: what travels to rank 0.
template <class View>
auto dense(const View& view) {
  using Value = std::remove_const_t<std::remove_pointer_t<decltype(view.data)>>;
  std::vector<Value> values;
  values.reserve(static_cast<std::size_t>(view.rows * view.cols));
  for (std::int64_t r = 0; r < view.rows; ++r) values.insert(values.end(), view.row(r), view.row(r) + view.cols);
  return values;
}

template <class T>
std::vector<T> gather(Job& job, const std::vector<T>& mine) {
  std::vector<T> all;
  for (const auto& part :
       job.world().gather(std::as_bytes(std::span(mine)), 0, job.context(), "collecting the output")) {
    const auto at = all.size();
    all.resize(at + part.size() / sizeof(T));
    if (!part.empty()) std::memcpy(all.data() + at, part.data(), part.size());
  }
  return all;
}

}  // namespace

RunOutput::RunOutput(Job& job, std::string path) : path_(std::move(path)) {
  job.only_first([&] { check_writable(path_); }, "checking --output");
}

void RunOutput::add(Job& job, std::int64_t layer, ConstMatrixView y, const Routing& routing) {
  layers_.push_back({layer, y.cols, routing.top_k(), gather(job, dense(y.as<const float, Token, Hidden>())),
                     gather(job, dense(routing.ids)), gather(job, dense(routing.weights))});
}

void RunOutput::write(Job& job) const {
  job.only_first(
      [&] {
        std::vector<checkpoint::TensorToWrite> tensors;
        for (const auto& layer : layers_) {
          const auto rows = static_cast<std::int64_t>(layer.y.size()) / layer.hidden;
          const auto prefix = fmt::format("layers.{}.", layer.index);
          tensors.push_back({prefix + "moe_output", const_matrix_view(layer.y.data(), rows, layer.hidden), {}});
          tensors.push_back({prefix + "topk_ids", const_matrix_view(layer.ids.data(), rows, layer.top_k), {}});
          tensors.push_back({prefix + "topk_weights", const_matrix_view(layer.weights.data(), rows, layer.top_k), {}});
        }
        checkpoint::write_safetensors(path_, tensors);
      },
      "writing --output");
}

void check_writable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path target(path);
  const auto parent = target.has_parent_path() ? target.parent_path() : fs::path(".");
  if (fs::is_directory(target, ignored))
    throw InputError(fmt::format("{}: a directory found, a file to write wanted", path));
  if (fs::exists(target, ignored) && !fs::is_regular_file(target, ignored))
    throw InputError(fmt::format("{}: a device or pipe found, a regular file to write wanted", path));
  if (!fs::is_directory(parent, ignored))
    throw InputError(fmt::format("{}: {} is not a directory", path, parent.string()));
  if (access(parent.c_str(), W_OK) != 0)
    throw InputError(fmt::format("{}: cannot write in {}: {}", path, parent.string(), std::strerror(errno)));
}

void check_not_read(const std::string& flag, const std::string& path, std::span<const std::string> read) {
  std::error_code ignored;
  for (const auto& other : read)
    if (std::filesystem::equivalent(path, other, ignored))
      throw ConfigError(fmt::format("{} {}: would overwrite {}, which this run reads", flag, path, other));
}

void write_text(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    return;
  }
  std::error_code ignored;
  const auto place =
      std::filesystem::is_symlink(path, ignored) ? std::filesystem::weakly_canonical(path).string() : path;
  const auto beside = fmt::format("{}.{}.part", place, getpid());
  std::FILE* file = std::fopen(beside.c_str(), "wb");
  bool fine = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) fine = (std::fclose(file) == 0) && fine;
  fine = fine && std::rename(beside.c_str(), place.c_str()) == 0;
  if (!fine) {
    const std::string why = std::strerror(errno);
    std::remove(beside.c_str());
    throw InputError(fmt::format("{}: cannot be written: {}", path, why));
  }
}

}  // namespace epmoe::cli
