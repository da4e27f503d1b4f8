#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "epmoe/core/stage_data.hpp"
#include "job.hpp"
#include "tokens.hpp"

namespace epmoe::cli {

/// Collects layers' results on rank 0 and writes them as one safetensors file.
class RunOutput {
 public:
  /// Collective: fails early if the file cannot be written where `path` says.
  RunOutput(Job& job, std::string path);
  /// Collective: a layer's result of all ranks, rows in input order.
  void add(Job& job, std::int64_t layer, ConstMatrixView y, const Routing& routing);
  /// Collective: rank 0 writes, atomically.
  void write(Job& job) const;

 private:
  struct Layer {
    std::int64_t index = 0, hidden = 0, top_k = 0;
    std::vector<float> y;
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
  };
  std::string path_;
  std::vector<Layer> layers_;
};

/// Writes `text` beside `path` and renames it; "-" is stdout. Throws InputError.
void write_text(const std::string& path, const std::string& text);
/// Throws InputError if `path` is a directory or lies in a directory that is not there or cannot be written.
void check_writable(const std::string& path);
/// ConfigError if writing there would replace one of the files that are read.
void check_not_read(const std::string& flag, const std::string& path, std::span<const std::string> read);

}  // namespace epmoe::cli
