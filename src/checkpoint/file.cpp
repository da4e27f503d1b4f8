#include "checkpoint/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "checkpoint/text.hpp"

namespace epmoe::checkpoint {
namespace {

std::string system_reason(int error) {
  return std::generic_category().message(error);
}

}  // namespace

File::File(const std::filesystem::path& path) : path_(path) {
  // O_NONBLOCK: opening a FIFO that nobody writes to must not hang; it has no effect on regular files.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail(path, fmt::format("cannot open: {}", system_reason(errno)));
  struct stat status{};
  const int failed = ::fstat(descriptor_, &status);
  if (failed != 0 || !S_ISREG(status.st_mode)) {
    const int error = errno;
    ::close(descriptor_);
    fail(path, failed != 0 ? fmt::format("cannot look at it: {}", system_reason(error)) : "not a regular file");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

File::~File() {
  ::close(descriptor_);
}

std::string File::read(std::uint64_t offset, std::uint64_t count) const {
  std::string out(count, '\0');
  std::uint64_t done = 0;
  while (done < count) {
    const ssize_t got = ::pread(descriptor_, out.data() + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, fmt::format("cannot read: {}", system_reason(errno)));
    if (got == 0)
      fail(path_,
           fmt::format("ends at byte {}, wanted {} (is it still being written?)", offset + done, offset + count));
    done += static_cast<std::uint64_t>(got);
  }
  return out;
}

std::string read_text(const std::filesystem::path& path, std::uint64_t limit) {
  const File file(path);
  if (file.size() > limit) fail(path, fmt::format("has {} bytes, wanted at most {}", file.size(), limit));
  std::string text = file.read(0, file.size());
  refuse_other_formats(text, path);
  return text;
}

void refuse_other_formats(std::string_view start, const std::filesystem::path& file) {
  if (start.starts_with("version https://git-lfs"))
    fail(file, "is a Git LFS pointer, not the data; fetch it (git lfs pull)");
  if (start.starts_with("GGUF")) fail(file, "is a GGUF file, wanted safetensors");
  if (start.starts_with("PK\x03\x04"))
    fail(file, "is a zip archive (a pickled PyTorch checkpoint?), wanted safetensors");
  if (start.starts_with("<!DOCTYPE") || start.starts_with("<!doctype") || start.starts_with("<html"))
    fail(file, "is a web page, not the data; the download failed");
}

}  // namespace epmoe::checkpoint
