#include "checkpoint/header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "checkpoint/file.hpp"
#include "checkpoint/json_text.hpp"
#include "checkpoint/text.hpp"

namespace epmoe::checkpoint {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference parser's limit
using Path = std::filesystem::path;

/// Bits of one element, 0 for a name that the format does not have.
unsigned bits_of(std::string_view dtype) {
  using Entry = std::pair<std::string_view, unsigned>;
  static constexpr std::array<Entry, 22> kBits{{
      {"F32", 32},    {"BF16", 16},   {"F16", 16},        {"BOOL", 8},        {"U8", 8},   {"I8", 8},
      {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8},     {"I16", 16},        {"U16", 16}, {"I32", 32},
      {"U32", 32},    {"I64", 64},    {"U64", 64},        {"F64", 64},        {"C64", 64}, {"F4", 4},
      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
  }};
  const auto* found = std::find_if(kBits.begin(), kBits.end(), [&](const Entry& e) { return e.first == dtype; });
  return found == kBits.end() ? 0 : found->second;
}

std::uint64_t length_field(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

const nlohmann::json& field(const nlohmann::json& entry, const char* key, const std::string& name, const Path& file) {
  const auto found = entry.find(key);
  if (found == entry.end()) fail(file, name, fmt::format("has no {}", key));
  return *found;
}

std::uint64_t unsigned_of(const nlohmann::json& value, const char* what, const std::string& name, const Path& file) {
  if (!value.is_number_unsigned())
    fail(file, name, fmt::format("{} holds {}, wanted a non-negative integer", what, in_quotes(value.dump())));
  return value.get<std::uint64_t>();
}

/// Offsets stay relative to the data here.
TensorInfo parse_entry(const std::string& name, const nlohmann::json& entry, const Path& file) {
  if (!entry.is_object()) fail(file, name, fmt::format("is described by {}, wanted an object", entry.type_name()));
  TensorInfo info;
  info.name = name;
  const auto& dtype = field(entry, "dtype", name, file);
  if (!dtype.is_string()) fail(file, name, "dtype is not a string");
  info.dtype = dtype.get<std::string>();
  const unsigned bits = bits_of(info.dtype);
  if (bits == 0) fail(file, name, fmt::format("dtype {} is not one that safetensors has", in_quotes(info.dtype)));

  const auto& shape = field(entry, "shape", name, file);
  if (!shape.is_array()) fail(file, name, "shape is not an array");
  std::uint64_t elements = 1;
  bool overflow = false;
  for (const auto& extent : shape) {
    const std::uint64_t value = unsigned_of(extent, "shape", name, file);
    overflow = overflow || value > INT64_MAX || __builtin_mul_overflow(elements, value, &elements);
    info.shape.push_back(static_cast<std::int64_t>(value));
  }
  std::uint64_t total_bits = 0;
  overflow = overflow || __builtin_mul_overflow(elements, std::uint64_t{bits}, &total_bits);
  if (overflow) fail(file, name, fmt::format("shape {} {} overflows 64 bits", shape_text(info.shape), info.dtype));
  if (total_bits % 8 != 0)
    fail(file, name, fmt::format("shape {} {} is not a whole number of bytes", shape_text(info.shape), info.dtype));

  const auto& offsets = field(entry, "data_offsets", name, file);
  if (!offsets.is_array() || offsets.size() != 2) fail(file, name, "data_offsets is not an array of two");
  info.begin = unsigned_of(offsets[0], "data_offsets", name, file);
  info.end = unsigned_of(offsets[1], "data_offsets", name, file);
  if (info.end < info.begin) fail(file, name, fmt::format("data_offsets [{}, {}] run backwards", info.begin, info.end));
  if (info.end - info.begin != total_bits / 8)
    fail(file, name,
         fmt::format("data_offsets [{}, {}] hold {} bytes, but shape {} {} needs {}", info.begin, info.end,
                     info.end - info.begin, shape_text(info.shape), info.dtype, total_bits / 8));
  return info;
}

void check_metadata(const nlohmann::json& metadata, const Path& file) {
  if (metadata.is_null()) return;
  if (!metadata.is_object()) fail(file, fmt::format("__metadata__ is {}, wanted an object", metadata.type_name()));
  for (const auto& [key, value] : metadata.items())
    if (!value.is_string())
      fail(file, fmt::format("__metadata__ {} is {}, wanted a string", in_quotes(key), value.type_name()));
}

/// Every byte of the data belongs to exactly one tensor.
void check_cover(const std::vector<TensorInfo>& tensors, std::uint64_t data_bytes, const Path& file) {
  std::uint64_t covered = 0;
  const TensorInfo* previous = nullptr;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin < covered)
      fail(file, tensor.name,
           fmt::format("data_offsets [{}, {}] overlap those of {} [{}, {}]", tensor.begin, tensor.end,
                       in_quotes(previous->name), previous->begin, previous->end));
    if (tensor.begin > covered)
      fail(
          file, tensor.name,
          fmt::format("data_offsets start at {}, wanted {}: bytes between belong to no tensor", tensor.begin, covered));
    if (tensor.end > data_bytes)
      fail(file, tensor.name,
           fmt::format("truncated: data_offsets end at {}, but the file holds {} bytes of data", tensor.end,
                       data_bytes));
    covered = tensor.end;
    previous = &tensor;
  }
  if (covered != data_bytes)
    fail(file, fmt::format("{} follow the last tensor, wanted none: the header covers {} of {} bytes of data",
                           count_text(data_bytes - covered, "byte"), covered, data_bytes));
}

}  // namespace

Header read_header(const Path& path) {
  const File file(path);
  Header header;
  header.file_bytes = file.size();
  if (file.size() == 0) fail(path, "is empty, wanted a safetensors file");
  refuse_other_formats(file.read(0, std::min<std::uint64_t>(file.size(), 64)), path);
  if (file.size() < 8) fail(path, fmt::format("truncated: {}, wanted at least 8", count_text(file.size(), "byte")));
  const std::uint64_t length = length_field(file.read(0, 8));
  if (length > kMaxHeaderBytes)
    fail(path, fmt::format("header length {} is over the format's limit of {}: not a safetensors file, or damaged",
                           length, kMaxHeaderBytes));
  if (length > file.size() - 8)
    fail(path, fmt::format("truncated: the header should have {} bytes, but only {} follow its length", length,
                           file.size() - 8));
  header.header_bytes = 8 + length;

  const std::string text = file.read(8, length);
  if (!text.starts_with('{'))
    fail(path, fmt::format("header starts with {}, wanted \"{{\"", in_quotes(text.substr(0, 8))));
  if (text.find('\0') != std::string::npos)
    fail(path,
         "header is padded with NUL bytes, wanted spaces; write the file again with a writer that keeps the format");
  if (text.starts_with("{},\"__metadata__\""))
    fail(path,
         "header is {},\"__metadata__\"…, the output of an old writer that was given no tensors; the file holds none");
  const auto json = parse_json(text, path);
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__")
      check_metadata(entry, path);
    else
      header.tensors.push_back(parse_entry(name, entry, path));
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_cover(header.tensors, file.size() - header.header_bytes, path);
  for (TensorInfo& tensor : header.tensors) {
    tensor.begin += header.header_bytes;
    tensor.end += header.header_bytes;
  }
  return header;
}

}  // namespace epmoe::checkpoint
