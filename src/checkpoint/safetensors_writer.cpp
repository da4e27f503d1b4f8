#include "checkpoint/safetensors_writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <system_error>
#include <utility>

#include "checkpoint/text.hpp"
#include "epmoe/checkpoint/safetensors.hpp"

namespace epmoe::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Renaming would replace a link by a file, and a device or a pipe too: links are followed, others refused.
fs::path place_of(const fs::path& target) {
  std::error_code ignored;
  auto place = target;
  for (int hops = 0; hops < 40 && fs::is_symlink(place, ignored); ++hops) {
    const auto to = fs::read_symlink(place, ignored);
    place = to.is_absolute() ? to : place.parent_path() / to;
  }
  if (fs::exists(place, ignored) && !fs::is_regular_file(place, ignored))
    throw CheckpointError(fmt::format("{}: not a regular file, which is wanted to write to", place.string()));
  return place;
}

/// A new file beside the wanted one; removed unless it was renamed to it.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& target) : target_(place_of(target)) {
    for (int attempt = 0; attempt < 100 && descriptor_ < 0; ++attempt) {
      path_ = target_;
      path_ += fmt::format(".tmp-{}-{}", ::getpid(), attempt);
      descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (descriptor_ < 0 && errno != EEXIST) break;
    }
    if (descriptor_ < 0) refuse("cannot write");
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!renamed_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t wrote = ::write(descriptor_, bytes.data(), bytes.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) refuse("cannot write");
      bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    }
  }
  void finish() {
    // Some file systems report a full disk only now.
    if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) refuse("cannot write");
    const int closed = ::close(std::exchange(descriptor_, -1));
    if (closed != 0) refuse("cannot write");
    if (std::rename(path_.c_str(), target_.c_str()) != 0) refuse("cannot put the finished file in place");
    renamed_ = true;
  }

 private:
  fs::path target_;
  fs::path path_;
  int descriptor_ = -1;
  bool renamed_ = false;
  [[noreturn]] void refuse(const char* what) {
    fail(target_, fmt::format("{}: {}", what, std::generic_category().message(errno)));
  }
};

/// Collects small pieces, so that a tensor written row by row does not cost a system call a row.
class Buffer {
 public:
  explicit Buffer(TemporaryFile& file) : file_(file) { bytes_.reserve(kBytes); }
  void add(std::span<const std::byte> bytes) {
    if (bytes_.size() + bytes.size() > kBytes) flush();
    if (bytes.size() >= kBytes)
      file_.write(bytes);
    else
      bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void flush() {
    file_.write(bytes_);
    bytes_.clear();
  }

 private:
  static constexpr std::size_t kBytes = 1U << 20U;
  TemporaryFile& file_;
  std::vector<std::byte> bytes_;
};

/// Place in the reference writer's order of dtypes, the widest first.
int dtype_rank(DType dtype) {
  switch (dtype) {
    case DType::f32: return 0;
    case DType::i32: return 1;
    case DType::bf16: return 2;
    case DType::f16: return 3;
    default: return -1;
  }
}

std::uint64_t checked_bytes(const TensorSpec& spec) {
  std::uint64_t bytes = static_cast<std::uint64_t>(size_bytes(spec.dtype));
  for (const std::int64_t extent : spec.shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes))
      throw InputError(
          fmt::format("tensor {}: shape {} cannot be written", in_quotes(spec.name), shape_text(spec.shape)));
  return bytes;
}

std::string name_as_json(const std::string& name) {
  try {
    return nlohmann::json(name).dump();
  } catch (const nlohmann::json::exception&) {
    throw InputError(fmt::format("tensor {}: the name is not UTF-8", in_quotes(name)));
  }
}

std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace

std::optional<DType> dtype_of_name(std::string_view name) {
  if (name == "F32") return DType::f32;
  if (name == "F16") return DType::f16;
  if (name == "BF16") return DType::bf16;
  if (name == "I32") return DType::i32;
  return std::nullopt;
}

std::string_view safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "F32";
    case DType::f16: return "F16";
    case DType::bf16: return "BF16";
    case DType::i32: return "I32";
    default: return {};
  }
}

void write_atomically(const fs::path& path, const std::function<void(const ByteSink&)>& produce) {
  TemporaryFile file(path);
  Buffer buffer(file);
  produce([&](std::span<const std::byte> bytes) { buffer.add(bytes); });
  buffer.flush();
  file.finish();
}

void stream_safetensors(const fs::path& path, std::span<const TensorSpec> specs,
                        const std::function<void(std::size_t, const ByteSink&)>& produce) {
  std::vector<std::size_t> order(specs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const int left = dtype_rank(specs[a].dtype), right = dtype_rank(specs[b].dtype);
    return left != right ? left < right : specs[a].name < specs[b].name;
  });
  std::vector<std::string_view> names;
  for (const TensorSpec& spec : specs) {
    if (dtype_rank(spec.dtype) < 0)
      throw InputError(fmt::format("tensor {}: dtype {} is not written, wanted f32, f16, bf16 or i32",
                                   in_quotes(spec.name), epmoe::name(spec.dtype)));
    if (spec.name == "__metadata__") throw InputError("tensor \"__metadata__\": the format keeps this name for itself");
    names.push_back(spec.name);
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    throw InputError(fmt::format("tensor {} is given twice", in_quotes(*twice)));

  std::string header = "{";
  std::uint64_t offset = 0;
  for (const std::size_t i : order) {
    const std::uint64_t end = offset + checked_bytes(specs[i]);
    header += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", header.size() > 1 ? "," : "",
                          name_as_json(specs[i].name), safetensors_name(specs[i].dtype), fmt::join(specs[i].shape, ","),
                          offset, end);
    offset = end;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  std::string length;
  for (unsigned i = 0; i < 8; ++i) length += static_cast<char>((header.size() >> (8 * i)) & 0xffU);

  write_atomically(path, [&](const ByteSink& sink) {
    sink(as_bytes(length));
    sink(as_bytes(header));
    for (const std::size_t i : order) {
      std::uint64_t written = 0;
      produce(i, [&](std::span<const std::byte> bytes) {
        written += bytes.size();
        sink(bytes);
      });
      if (written != checked_bytes(specs[i]))
        throw InternalError(fmt::format("tensor {}: {} bytes were produced, wanted {}", in_quotes(specs[i].name),
                                        written, checked_bytes(specs[i])));
    }
  });
}

void write_safetensors(const fs::path& path, std::span<const TensorToWrite> tensors) {
  std::vector<TensorSpec> specs;
  for (const TensorToWrite& tensor : tensors) {
    TensorSpec spec{tensor.name, tensor.data.dtype, tensor.shape};
    if (spec.shape.empty()) spec.shape = {tensor.data.rows, tensor.data.cols};
    const auto wanted = static_cast<std::uint64_t>(tensor.data.rows * tensor.data.cols * size_bytes(tensor.data.dtype));
    if (checked_bytes(spec) != wanted)
      throw InputError(fmt::format("tensor {}: shape {} does not hold the {} elements of {}", in_quotes(tensor.name),
                                   shape_text(spec.shape), tensor.data.rows * tensor.data.cols, describe(tensor.data)));
    specs.push_back(std::move(spec));
  }
  stream_safetensors(path, specs, [&](std::size_t i, const ByteSink& sink) {
    const ConstMatrixView& data = tensors[i].data;
    for (std::int64_t row = 0; row < data.rows; ++row)
      sink({data.row(row), static_cast<std::size_t>(data.cols * size_bytes(data.dtype))});
  });
}

}  // namespace epmoe::checkpoint
