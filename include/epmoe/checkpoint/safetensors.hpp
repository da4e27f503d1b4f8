#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "epmoe/core/tensor_view.hpp"

/// safetensors, read by the reference parser's rules (huggingface/safetensors, safetensors/src/tensor.rs) and written
/// as its writer does. Local, no communication.
namespace epmoe::checkpoint {

struct TensorInfo {
  std::string name;
  std::string dtype;  ///< as in the file: "F32", "BF16", …
  std::vector<std::int64_t> shape;
  std::uint32_t file = 0;            ///< index into Catalog::files
  std::uint64_t begin = 0, end = 0;  ///< bytes from the start of the file
  bool operator==(const TensorInfo&) const = default;
};

/// The headers of all shards of a checkpoint: everything there is to know without reading a tensor. Serialisable, so
/// that one rank reads and broadcasts it. Throws CheckpointError naming file, tensor, what was found and wanted.
class Catalog {
 public:
  /// A directory with model.safetensors, or model.safetensors.index.json and its shards, or exactly one *.safetensors;
  /// or a single file. Reads headers only. Stray *.safetensors that the index does not name, and tensors of a shard
  /// that the index does not place there, are told in notes().
  static Catalog read(const std::filesystem::path& path);
  [[nodiscard]] std::vector<std::byte> serialize() const;
  /// What serialize() gave, on this or another rank; its header_bytes_read() is 0.
  static Catalog deserialize(std::span<const std::byte> bytes);

  [[nodiscard]] const TensorInfo* find(const std::string& name) const;  ///< null if there is none
  [[nodiscard]] const TensorInfo& at(const std::string& name) const;    ///< CheckpointError if there is none
  [[nodiscard]] const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  [[nodiscard]] const std::vector<std::filesystem::path>& files() const { return files_; }
  /// Bytes of each file when its header was read.
  [[nodiscard]] const std::vector<std::uint64_t>& file_sizes() const { return sizes_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  /// What this process read from disk to make the catalog.
  [[nodiscard]] std::uint64_t header_bytes_read() const { return header_bytes_; }

 private:
  std::vector<std::filesystem::path> files_;
  std::vector<std::uint64_t> sizes_;  // of the files, to notice a change between reading and mapping
  std::map<std::string, TensorInfo> tensors_;
  std::vector<std::string> notes_;
  std::uint64_t header_bytes_ = 0;

  std::uint32_t add_file(const std::filesystem::path& path, std::vector<TensorInfo>& found);
  void read_single(const std::filesystem::path& path);
  void read_indexed(const std::filesystem::path& dir, const std::filesystem::path& index);
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
  ConstMatrixView plane(const std::string& name, std::int64_t planes, std::int64_t index, std::int64_t rows,
                        std::int64_t cols);
  /// The bytes of a tensor of any dtype, counted like the views; CheckpointError if there is none of that name.
  std::span<const std::byte> bytes(const std::string& name);
  /// Gives the pages of the views handed out so far back to the system. The views stay valid: what is touched again is
  /// read again.
  void release();
  /// Tensor bytes handed out as views, each byte counted once however often it is asked for.
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  struct Map;
  const Catalog* catalog_;
  std::map<std::uint32_t, std::unique_ptr<Map>> maps_;
  std::uint64_t bytes_read_ = 0;

  Map& map(std::uint32_t file);
  ConstMatrixView view(const TensorInfo& tensor, DType dtype, std::uint64_t offset, std::int64_t rows,
                       std::int64_t cols);
};

/// What `safetensors_dtype` stands for if this library can compute with it or write it (F32, F16, BF16, I32).
std::optional<DType> dtype_of_name(std::string_view safetensors_dtype);
/// "F32", "BF16", …; empty for types that safetensors files of ours never hold.
std::string_view safetensors_name(DType dtype);

/// One tensor to write.
struct TensorToWrite {
  std::string name;
  ConstMatrixView data;             ///< f32, f16, bf16 or i32; written densely
  std::vector<std::int64_t> shape;  ///< empty: [rows, cols]
};
/// Writes beside `path` and renames, so nothing half-written is ever seen under that name. Tensors sorted as the
/// reference writer does (dtype, the widest first, then name), header padded to 8. Equal tensors give equal files.
/// Throws InputError for tensors that cannot be written (duplicate name, dtype, shape), CheckpointError naming the file
/// and the system's reason when writing fails; an existing file is then untouched and no other file is left behind.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors);

}  // namespace epmoe::checkpoint
