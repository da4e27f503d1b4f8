#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace epmoe::checkpoint {

/// An open regular file, read-only. Every failure is a CheckpointError naming the file and the system's reason.
class File {
 public:
  explicit File(const std::filesystem::path& path);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  /// Exactly `count` bytes from `offset`.
  [[nodiscard]] std::string read(std::uint64_t offset, std::uint64_t count) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// The whole of a small text file; more than `limit` bytes, or a Git LFS pointer in its place, is an error.
std::string read_text(const std::filesystem::path& path, std::uint64_t limit = 256U << 20U);
/// Throws if `start`, the first bytes of `file`, are those of something often found in a checkpoint's place: a Git LFS
/// pointer, GGUF, a pickled PyTorch archive, a web page.
void refuse_other_formats(std::string_view start, const std::filesystem::path& file);

}  // namespace epmoe::checkpoint
