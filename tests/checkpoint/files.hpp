#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "epmoe/core/error.hpp"

/// Safetensors files written byte by byte, so that every way of being broken can be made.
namespace epmoe::test {

/// A fresh directory, removed at the end.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "epmoe-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      out.push_back(entry.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::remove(path);  // some file systems flush a file that is truncated and written again
  std::ofstream(path, std::ios::binary) << bytes;
}
inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string length_bytes(std::uint64_t value) {
  std::string out;
  for (unsigned i = 0; i < 8; ++i) out += static_cast<char>((value >> (8 * i)) & 0xffU);
  return out;
}
/// Length, header as given, then `data_bytes` bytes that differ from place to place and are finite as any float type.
inline std::string safetensors(const std::string& header, std::size_t data_bytes) {
  std::string out = length_bytes(header.size()) + header;
  for (std::size_t i = 0; i < data_bytes; ++i) out += static_cast<char>(((i + 1) * 2654435761U >> 13U) & 0x3fU);
  return out;
}

struct FileTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string dtype = "F32";
};
inline std::size_t bytes_of(const FileTensor& entry) {
  std::size_t bytes = entry.dtype == "F32" || entry.dtype == "I32"                                  ? 4
                      : entry.dtype.starts_with("F8") || entry.dtype == "U8" || entry.dtype == "I8" ? 1
                                                                                                    : 2;
  for (const auto extent : entry.shape) bytes *= static_cast<std::size_t>(extent);
  return bytes;
}
/// A sound file of these tensors in this order.
inline std::string safetensors(const std::vector<FileTensor>& entries) {
  std::string header = "{";
  std::size_t offset = 0;
  for (const FileTensor& entry : entries) {
    const std::size_t end = offset + bytes_of(entry);
    header +=
        fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", header.size() > 1 ? "," : "",
                    entry.name, entry.dtype, fmt::join(entry.shape, ","), offset, end);
    offset = end;
  }
  return safetensors(header + "}", offset);
}

/// Expects `call` to throw exactly `E` with a one-line message that holds all of `parts`.
template <class E, class Call>
void expect_error(Call call, const std::vector<std::string>& parts) {
  try {
    call();
    ADD_FAILURE() << "no error; wanted one with " << ::testing::PrintToString(parts);
  } catch (const E& error) {
    const std::string what = error.what();
    for (const std::string& part : parts) EXPECT_THAT(what, ::testing::HasSubstr(part));
    EXPECT_THAT(what, ::testing::Not(::testing::HasSubstr("\n")));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "wrong type of error: " << error.what();
  }
}

}  // namespace epmoe::test
