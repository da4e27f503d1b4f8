#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "epmoe/core/tensor_view.hpp"

/// safetensors, read by the reference parser's rules (huggingface/safetensors, safetensors/src/tensor.rs) and written
/// as its writer does. Local, no communication.
namespace epmoe::checkpoint {

struct TensorInfo {
  std::string name;
  std::string dtype;                 ///< as in the file: "F32", "BF16", …
  std::vector<std::int64_t> shape;
  std::uint32_t file = 0;            ///< index into Catalog::files
  std::uint64_t begin = 0, end = 0;  ///< bytes from the start of the file
};

/// The headers of all shards of a checkpoint: everything there is to know without reading a tensor. Serialisable, so
/// that one rank reads and broadcasts it. Throws CheckpointError naming file, tensor, what was found and wanted.
class Catalog {
 public:
  /// A directory with model.safetensors, or model.safetensors.index.json and its shards, or exactly one *.safetensors;
  /// or a single file. Reads headers only. Stray *.safetensors that the index does not name are listed in notes().
  static Catalog read(const std::filesystem::path& path);
  [[nodiscard]] std::vector<std::byte> serialize() const;
  static Catalog deserialize(std::span<const std::byte> bytes);

  [[nodiscard]] const TensorInfo* find(const std::string& name) const;  ///< null if there is none
  [[nodiscard]] const TensorInfo& at(const std::string& name) const;    ///< CheckpointError if there is none
  [[nodiscard]] const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  [[nodiscard]] const std::vector<std::filesystem::path>& files() const { return files_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  [[nodiscard]] std::uint64_t header_bytes_read() const { return header_bytes_; }

 private:
  std::vector<std::filesystem::path> files_;
  std::vector<std::uint64_t> sizes_;  // of the files, to notice a change between reading and mapping
  std::map<std::string, TensorInfo> tensors_;
  std::vector<std::string> notes_;
  std::uint64_t header_bytes_ = 0;
};

/// Maps shards on first use and hands out views. Not thread-safe.
class TensorReader {
 public:
  explicit TensorReader(const Catalog& catalog);  ///< `catalog` must outlive the reader
  ~TensorReader();
  TensorReader(const TensorReader&) = delete;
  TensorReader& operator=(const TensorReader&) = delete;
  /// A 2-D F32, F16 or BF16 tensor (1-D: one row) of the wanted shape as a view into the map, valid while the reader
  /// lives; data may be unaligned. Throws CheckpointError naming file, tensor, shape or dtype found and wanted.
  ConstMatrixView matrix(const std::string& name, std::int64_t rows, std::int64_t cols);
  /// Plane `index` of a 3-D tensor [planes, rows, cols].
  ConstMatrixView plane(const std::string& name, std::int64_t planes, std::int64_t index, std::int64_t rows, std::int64_t cols);
  /// Gives the pages of the views handed out so far back to the system.
  void release();
  /// Tensor bytes handed out as views, each byte range counted once.
  [[nodiscard]] std::uint64_t bytes_read() const;

 private:
  struct Map;
  const Catalog* catalog_;
  std::map<std::uint32_t, std::unique_ptr<Map>> maps_;
  std::map<std::uint64_t, std::uint64_t> ranges_;  // (file << 48 | begin) -> end: what was handed out
  const std::byte* map(std::uint32_t file);
  void count(const TensorInfo& tensor, std::uint64_t begin, std::uint64_t end);
};

/// One tensor to write.
struct TensorToWrite {
  std::string name;
  ConstMatrixView data;              ///< f32, f16, bf16 or i32; written densely
  std::vector<std::int64_t> shape;   ///< empty: [rows, cols]
};
/// Writes beside `path` and renames, so nothing half-written is ever seen under that name. Tensors sorted as the
/// reference writer does (alignment descending, then name), header padded to 8. Equal tensors give equal files.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors);

}  // namespace epmoe::checkpoint
