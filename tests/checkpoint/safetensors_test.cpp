#include "epmoe/checkpoint/safetensors.hpp"

#include "checkpoint/files.hpp"

namespace epmoe::checkpoint {
namespace {

using namespace epmoe::test;

constexpr const char* kGood =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";

class SafetensorsFile : public ::testing::Test {
 protected:
  TempDir dir_;
  void refused(const std::string& bytes, std::vector<std::string> parts) {
    write_file(dir_ / "model.safetensors", bytes);
    parts.emplace_back("model.safetensors");
    expect_error<CheckpointError>([&] { Catalog::read(dir_.path()); }, parts);
  }
  void refused_header(const std::string& header, std::size_t data_bytes, const std::vector<std::string>& parts) {
    refused(safetensors(header, data_bytes), parts);
  }
  Catalog accepted(const std::string& bytes) {
    write_file(dir_ / "model.safetensors", bytes);
    return Catalog::read(dir_.path());
  }
};

TEST_F(SafetensorsFile, ReadsNamesShapesAndPlaces) {
  const Catalog catalog = accepted(safetensors(kGood, 32));
  const std::uint64_t data = 8 + std::string(kGood).size();
  ASSERT_EQ(catalog.tensors().size(), 2U);
  const TensorInfo& a = catalog.at("a");
  EXPECT_EQ(a, (TensorInfo{"a", "F32", {2, 3}, 0, data, data + 24}));
  EXPECT_EQ(catalog.at("b"), (TensorInfo{"b", "BF16", {4}, 0, data + 24, data + 32}));
  EXPECT_EQ(catalog.header_bytes_read(), data);
  EXPECT_EQ(catalog.file_sizes(), std::vector<std::uint64_t>{data + 32});
  EXPECT_THAT(catalog.notes(), ::testing::IsEmpty());
  expect_error<CheckpointError>([&] { (void)catalog.at("c"); }, {"model.safetensors", "tensor \"c\": missing"});
}

TEST_F(SafetensorsFile, AcceptsWhatTheFormatAllows) {
  // Spaces after the header, any order of entries, an odd data start, null metadata, zero-size and rank-0 tensors.
  const std::string header =
      R"({"b":{"dtype":"F32","shape":[],"data_offsets":[2,6]},"empty":{"dtype":"F32","shape":[0,7],"data_offsets":[2,2]},)"
      R"("a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"__metadata__":null})";
  for (std::size_t spaces = 0; spaces < 9; ++spaces) {
    const Catalog catalog = accepted(safetensors(header + std::string(spaces, ' '), 6));
    EXPECT_EQ(catalog.at("b").shape, std::vector<std::int64_t>{});
    EXPECT_EQ(catalog.at("b").end - catalog.at("b").begin, 4U);
    EXPECT_EQ(catalog.at("empty").begin, catalog.at("empty").end);
    TensorReader reader(catalog);
    EXPECT_EQ(reader.matrix("empty", 0, 7).rows, 0);
    EXPECT_EQ(reader.bytes_read(), 0U);
  }
  EXPECT_TRUE(accepted(safetensors("{}", 0)).tensors().empty());
  // Types that are never computed with are catalogued all the same, the packed ones included.
  const Catalog others = accepted(safetensors(
      R"({"x":{"dtype":"F4","shape":[4],"data_offsets":[0,2]},"y":{"dtype":"F8_E8M0","shape":[1],"data_offsets":[2,3]},"z":{"dtype":"I64","shape":[1],"data_offsets":[3,11],"extra":1}})",
      11));
  EXPECT_EQ(others.tensors().size(), 3U);
}

TEST_F(SafetensorsFile, MisalignedDataIsReadAsItIs) {
  const std::string header =
      R"({"pad":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[1,9]}})";
  for (std::size_t spaces = 0; spaces < 4; ++spaces) {
    std::string bytes = safetensors(header + std::string(spaces, ' '), 1);
    const float values[2] = {1.5F, -2.25F};
    bytes.append(reinterpret_cast<const char*>(values), sizeof values);
    const Catalog catalog = accepted(bytes);
    TensorReader reader(catalog);
    float row[2] = {};
    read_row(reader.matrix("a", 1, 2), 0, row);
    EXPECT_EQ(row[0], 1.5F);
    EXPECT_EQ(row[1], -2.25F);
  }
}

TEST_F(SafetensorsFile, TruncatedFileIsNamed) {
  const std::string good = safetensors(kGood, 32);
  refused("", {"empty"});
  refused(good.substr(0, 5), {"truncated", "5 bytes", "at least 8"});
  refused(good.substr(0, 60), {"truncated", "the header should have", "52 follow"});
  refused(good.substr(0, good.size() - 1), {"tensor \"b\"", "truncated", "end at 32", "31 bytes"});
  refused(good.substr(0, good.size() - 20), {"tensor \"a\"", "truncated", "end at 24", "12 bytes"});
}

TEST_F(SafetensorsFile, HugeLengthField) {
  refused(length_bytes(std::uint64_t{1} << 63) + "{}", {"9223372036854775808", "limit of 100000000"});
  refused(length_bytes(~std::uint64_t{0}) + "{}", {"limit of 100000000"});
  refused(length_bytes(100'000'001) + "{}", {"100000001", "limit of 100000000"});
  refused(length_bytes(100'000'000) + "{}", {"truncated", "100000000", "2 follow"});
}

TEST_F(SafetensorsFile, DuplicateKeysAreCalledDuplicates) {
  refused_header(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
      8, {"duplicate key \"a\"", "each name once"});
  refused_header(R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4,
                 {"duplicate key \"shape\" in \"a\""});
  refused_header(R"({"__metadata__":{"k":"1","k":"2"}})", 0, {"duplicate key \"k\" in \"__metadata__\""});
}

TEST_F(SafetensorsFile, EveryByteHasOneOwner) {
  refused_header(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
      12, {"tensor \"b\"", "[4, 12] overlap those of \"a\" [0, 8]"});
  refused_header(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
      8, {"tensor \"b\"", "overlap", "\"a\""});
  refused_header(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
      12, {"tensor \"b\"", "start at 8, wanted 4"});
  refused_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8,
                 {"tensor \"a\"", "start at 4, wanted 0"});
  refused_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 7,
                 {"3 bytes follow the last tensor", "covers 4 of 7"});
  refused_header("{}", 1, {"1 byte follow"});
}

TEST_F(SafetensorsFile, OffsetsMustFitTheShape) {
  refused_header(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8,
                 {"tensor \"a\"", "hold 8 bytes", "[3] F32 needs 12"});
  refused_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, {"tensor \"a\"", "run backwards"});
  refused_header(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1,
                 {"tensor \"a\"", "whole number of bytes"});
  refused_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}})", 8,
                 {"tensor \"a\"", "needs 8"});
}

TEST_F(SafetensorsFile, ShapeProductsAreCheckedForOverflow) {
  // 2^32 * 2^32 wraps to 0, which would fit the empty range.
  refused_header(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
                 {"tensor \"a\"", "overflows"});
  refused_header(R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0,
                 {"tensor \"a\"", "overflows"});
  refused_header(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,0]}})", 0,
                 {"tensor \"a\"", "overflows"});
}

TEST_F(SafetensorsFile, WrongEntries) {
  refused_header(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, {"tensor \"a\"", "has no dtype"});
  refused_header(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, {"tensor \"a\"", "has no shape"});
  refused_header(R"({"a":{"dtype":"F32","shape":[1]}})", 4, {"tensor \"a\"", "has no data_offsets"});
  refused_header(R"({"a":{"dtype":"FLOAT","shape":[1],"data_offsets":[0,4]}})", 4, {"tensor \"a\"", "\"FLOAT\""});
  refused_header(R"({"a":{"dtype":5,"shape":[1],"data_offsets":[0,4]}})", 4, {"tensor \"a\"", "dtype is not a string"});
  refused_header(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4,
                 {"tensor \"a\"", "\"-1\"", "non-negative"});
  refused_header(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4,
                 {"tensor \"a\"", "non-negative integer"});
  refused_header(R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4,
                 {"tensor \"a\"", "shape is not an array"});
  refused_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, {"tensor \"a\"", "array of two"});
  refused_header(R"({"a":[]})", 0, {"tensor \"a\"", "wanted an object"});
  refused_header(R"({"__metadata__":{"k":1}})", 0, {"__metadata__", "\"k\"", "wanted a string"});
  refused_header(R"({"__metadata__":[]})", 0, {"__metadata__", "wanted an object"});
}

TEST_F(SafetensorsFile, HeaderThatIsNotTheFormats) {
  const std::string entry = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  refused_header("{" + entry + std::string(3, '\0'), 4, {"padded with NUL bytes", "wanted spaces"});
  refused_header(R"({},"__metadata__":{"key":"value"}})", 0, {"old writer", "given no tensors"});
  refused_header(" {" + entry, 4, {"header starts with"});
  refused_header("[1]", 0, {"header starts with \"[1]\""});
  refused_header("", 0, {"header starts with"});
  refused_header("{" + entry.substr(0, 20), 4, {"not valid JSON"});
  refused_header("{" + entry + "x", 4, {"not valid JSON"});
  refused_header("{\"\xff\":{}}", 0, {"not valid JSON"});
  refused_header("{\"a\":" + std::string(5000, '[') + std::string(5000, ']') + "}", 0, {"nested deeper"});
}

TEST_F(SafetensorsFile, OtherFilesInItsPlaceAreRecognised) {
  refused("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n",
          {"Git LFS pointer", "git lfs pull"});
  refused("GGUF\x03" + std::string(40, '\0'), {"GGUF"});
  refused("PK\x03\x04" + std::string(40, '\0'), {"PyTorch"});
  refused("<!DOCTYPE html><html></html>", {"web page"});
}

TEST_F(SafetensorsFile, NamesFromTheFileCannotBreakTheMessage) {
  refused_header(R"({"a\nb\u0007":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, {R"("a\x0ab\x07")"});
  refused_header("\xff\xc3{}", 0, {R"(header starts with "\xff\xc3{}")"});
  refused_header("{\"é\":{\"dtype\":\"F32\"}}", 0, {"tensor \"é\""});
  refused_header("{\"" + std::string(5000, 'n') + R"(":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8,
                 {"nnnn…"});
}

TEST_F(SafetensorsFile, FilesThatCannotBeRead) {
  expect_error<CheckpointError>([&] { Catalog::read(dir_ / "absent"); }, {"absent", "No such file"});
  expect_error<CheckpointError>([&] { Catalog::read(dir_.path()); }, {dir_.path().string(), "no model.safetensors"});
  std::filesystem::create_directory(dir_ / "model.safetensors");
  expect_error<CheckpointError>([&] { Catalog::read(dir_.path()); }, {"model.safetensors", "not a regular file"});
}

/// No broken file crashes: cut at every byte, and with every bit of the header flipped.
TEST_F(SafetensorsFile, DamageIsAlwaysAnErrorOrHarmless) {
  const std::string good = safetensors(kGood, 32);
  const auto path = dir_ / "model.safetensors";
  int refused_count = 0;
  const auto attempt = [&](const std::string& bytes) {
    write_file(path, bytes);
    try {
      const Catalog catalog = Catalog::read(path);
      TensorReader reader(catalog);
      for (const auto& [name, info] : catalog.tensors()) {
        unsigned sum = 0;
        for (const std::byte byte : reader.bytes(name)) sum += std::to_integer<unsigned>(byte);
        EXPECT_GE(sum, 0U);
      }
    } catch (const CheckpointError&) {
      ++refused_count;
    }
  };
  for (std::size_t size = 0; size < good.size(); ++size) attempt(good.substr(0, size));
  EXPECT_EQ(refused_count, static_cast<int>(good.size()));
  for (std::size_t i = 0; i < good.size() - 32; ++i) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(static_cast<unsigned char>(bytes[i]) ^ (1U << bit));
      attempt(bytes);
    }
  }
}

}  // namespace
}  // namespace epmoe::checkpoint
