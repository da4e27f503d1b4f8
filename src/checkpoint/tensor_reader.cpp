#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <system_error>

#include "checkpoint/file.hpp"
#include "checkpoint/text.hpp"
#include "epmoe/checkpoint/safetensors.hpp"

namespace epmoe::checkpoint {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian and is used in place");

/// One shard in memory, and which of its bytes were handed out.
struct TensorReader::Map {
  Map(const std::filesystem::path& path, std::uint64_t wanted_size) : size(wanted_size) {
    const File file(path);
    if (file.size() != wanted_size)
      fail(path, fmt::format("has {} bytes, but had {} when its header was read: it changed since", file.size(),
                             wanted_size));
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
    if (mapped == MAP_FAILED)
      fail(path, fmt::format("cannot map {} bytes: {}", size, std::generic_category().message(errno)));
    data = static_cast<const std::byte*>(mapped);
  }
  ~Map() { ::munmap(const_cast<std::byte*>(data), size); }
  Map(const Map&) = delete;
  Map& operator=(const Map&) = delete;

  /// Marks [begin, end) and returns how many of its bytes were not marked before.
  std::uint64_t mark(std::uint64_t begin, std::uint64_t end) {
    if (begin == end) return 0;
    std::uint64_t fresh = end - begin;
    auto next = ranges.upper_bound(begin);
    if (next != ranges.begin() && std::prev(next)->second >= begin) --next;
    while (next != ranges.end() && next->first <= end) {
      const std::uint64_t low = std::max(next->first, begin);
      const std::uint64_t high = std::min(next->second, end);
      if (high > low) fresh -= high - low;
      // Grow the new range over this one; what it adds outside was counted when it was marked.
      begin = std::min(begin, next->first);
      end = std::max(end, next->second);
      next = ranges.erase(next);
    }
    ranges.emplace(begin, end);
    return fresh;
  }
  void advise(std::uint64_t begin, std::uint64_t end, int advice) const {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t first = begin / page * page;
    // Only a hint: without it the same bytes are read, just later.
    if (end > first) (void)::madvise(const_cast<std::byte*>(data) + first, end - first, advice);
  }

  std::uint64_t size;
  const std::byte* data = nullptr;
  std::map<std::uint64_t, std::uint64_t> ranges;  // begin → end, disjoint
};

namespace {

[[noreturn]] void wrong(const Catalog& catalog, const TensorInfo& tensor, const std::string& what) {
  fail(catalog.files()[tensor.file], tensor.name, what);
}

DType float_dtype(const Catalog& catalog, const TensorInfo& tensor) {
  const auto dtype = dtype_of_name(tensor.dtype);
  if (!dtype || *dtype == DType::i32)
    wrong(catalog, tensor, fmt::format("dtype {}, wanted F32, F16 or BF16", tensor.dtype));
  return *dtype;
}

}  // namespace

TensorReader::TensorReader(const Catalog& catalog) : catalog_(&catalog) {}
TensorReader::~TensorReader() = default;

TensorReader::Map& TensorReader::map(std::uint32_t file) {
  auto& slot = maps_[file];
  if (!slot) slot = std::make_unique<Map>(catalog_->files()[file], catalog_->file_sizes()[file]);
  return *slot;
}

ConstMatrixView TensorReader::view(const TensorInfo& tensor, DType dtype, std::uint64_t offset, std::int64_t rows,
                                   std::int64_t cols) {
  const std::uint64_t begin = tensor.begin + offset;
  const std::uint64_t end = begin + static_cast<std::uint64_t>(rows * cols * size_bytes(dtype));
  Map& shard = map(tensor.file);
  if (const std::uint64_t fresh = shard.mark(begin, end); fresh > 0) {
    bytes_read_ += fresh;
    shard.advise(begin, end, MADV_WILLNEED);
  }
  return {shard.data + begin, dtype, rows, cols, cols, MemorySpace::host};
}

ConstMatrixView TensorReader::matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
  const TensorInfo& tensor = catalog_->at(name);
  const bool row = tensor.shape.size() == 1 && rows == 1 && tensor.shape[0] == cols;
  if (!row && tensor.shape != std::vector<std::int64_t>{rows, cols})
    wrong(*catalog_, tensor, fmt::format("shape {}, wanted [{}, {}]", shape_text(tensor.shape), rows, cols));
  return view(tensor, float_dtype(*catalog_, tensor), 0, rows, cols);
}

ConstMatrixView TensorReader::plane(const std::string& name, std::int64_t planes, std::int64_t index, std::int64_t rows,
                                    std::int64_t cols) {
  const TensorInfo& tensor = catalog_->at(name);
  if (tensor.shape != std::vector<std::int64_t>{planes, rows, cols})
    wrong(*catalog_, tensor,
          fmt::format("shape {}, wanted [{}, {}, {}]", shape_text(tensor.shape), planes, rows, cols));
  if (index < 0 || index >= planes)
    throw InputError(fmt::format("tensor {}: plane {} asked for, wanted 0 to {}", in_quotes(name), index, planes - 1));
  const DType dtype = float_dtype(*catalog_, tensor);
  return view(tensor, dtype, static_cast<std::uint64_t>(index * rows * cols * size_bytes(dtype)), rows, cols);
}

std::span<const std::byte> TensorReader::bytes(const std::string& name) {
  const TensorInfo& tensor = catalog_->at(name);
  const auto size = static_cast<std::int64_t>(tensor.end - tensor.begin);
  return {static_cast<const std::byte*>(view(tensor, DType::u8, 0, 1, size).data), static_cast<std::size_t>(size)};
}

void TensorReader::release() {
  for (const auto& [file, shard] : maps_)
    for (const auto& [begin, end] : shard->ranges) shard->advise(begin, end, MADV_DONTNEED);
}

}  // namespace epmoe::checkpoint
