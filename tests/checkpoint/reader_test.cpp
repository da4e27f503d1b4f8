#include <cstring>

#include "checkpoint/files.hpp"
#include "epmoe/checkpoint/safetensors.hpp"

namespace epmoe::checkpoint {
namespace {

using namespace epmoe::test;

class Reader : public ::testing::Test {
 protected:
  TempDir dir_;
  Catalog catalog_;
  void SetUp() override {
    write_file(
        dir_ / "model.safetensors",
        safetensors(
            {{"m", {2, 3}}, {"stack", {3, 2, 4}, "BF16"}, {"row", {5}}, {"ids", {2}, "I32"}, {"q", {4}, "F8_E4M3"}}));
    catalog_ = Catalog::read(dir_.path());
  }
  [[nodiscard]] std::string bytes_at(ConstMatrixView view) const {
    return {static_cast<const char*>(view.data), static_cast<std::size_t>(extent_bytes(view))};
  }
  [[nodiscard]] std::string file_bytes(const std::string& name, std::size_t from, std::size_t count) const {
    return read_file(dir_ / "model.safetensors").substr(catalog_.at(name).begin + from, count);
  }
};

TEST_F(Reader, ViewsShowTheTensorsBytes) {
  TensorReader reader(catalog_);
  const ConstMatrixView m = reader.matrix("m", 2, 3);
  EXPECT_EQ(m.dtype, DType::f32);
  EXPECT_EQ(bytes_at(m), file_bytes("m", 0, 24));
  EXPECT_EQ(bytes_at(reader.matrix("row", 1, 5)), file_bytes("row", 0, 20));
  const ConstMatrixView plane = reader.plane("stack", 3, 1, 2, 4);
  EXPECT_EQ(plane.dtype, DType::bf16);
  EXPECT_EQ(bytes_at(plane), file_bytes("stack", 16, 16));
  const auto ids = reader.bytes("ids");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(ids.data()), ids.size()), file_bytes("ids", 0, 8));
}

TEST_F(Reader, EachByteIsCountedOnce) {
  TensorReader reader(catalog_);
  EXPECT_EQ(reader.bytes_read(), 0U);
  reader.plane("stack", 3, 2, 2, 4);
  EXPECT_EQ(reader.bytes_read(), 16U);
  reader.plane("stack", 3, 2, 2, 4);
  EXPECT_EQ(reader.bytes_read(), 16U);
  reader.plane("stack", 3, 0, 2, 4);
  EXPECT_EQ(reader.bytes_read(), 32U);
  reader.bytes("stack");  // only the plane between is new
  EXPECT_EQ(reader.bytes_read(), 48U);
  reader.bytes("stack");
  reader.plane("stack", 3, 1, 2, 4);
  EXPECT_EQ(reader.bytes_read(), 48U);
  reader.matrix("m", 2, 3);
  reader.matrix("m", 2, 3);
  EXPECT_EQ(reader.bytes_read(), 72U);
}

TEST_F(Reader, ReleasedViewsCanBeReadAgain) {
  TensorReader reader(catalog_);
  const ConstMatrixView m = reader.matrix("m", 2, 3);
  const std::string before = bytes_at(m);
  reader.release();
  EXPECT_EQ(bytes_at(m), before);
  EXPECT_EQ(reader.bytes_read(), 24U);
}

TEST_F(Reader, WrongShapeOrDtypeIsNamed) {
  TensorReader reader(catalog_);
  expect_error<CheckpointError>([&] { reader.matrix("m", 3, 2); },
                                {"model.safetensors", "tensor \"m\"", "[2, 3]", "wanted [3, 2]"});
  expect_error<CheckpointError>([&] { reader.matrix("row", 5, 1); }, {"tensor \"row\"", "[5]", "wanted [5, 1]"});
  expect_error<CheckpointError>([&] { reader.plane("m", 1, 0, 2, 3); }, {"tensor \"m\"", "wanted [1, 2, 3]"});
  expect_error<CheckpointError>([&] { reader.plane("stack", 3, 0, 4, 2); },
                                {"tensor \"stack\"", "[3, 2, 4]", "wanted [3, 4, 2]"});
  expect_error<InputError>([&] { reader.plane("stack", 3, 3, 2, 4); }, {"\"stack\"", "plane 3", "0 to 2"});
  expect_error<CheckpointError>([&] { reader.matrix("ids", 1, 2); }, {"tensor \"ids\"", "I32", "F32, F16 or BF16"});
  expect_error<CheckpointError>([&] { reader.matrix("q", 1, 4); }, {"tensor \"q\"", "F8_E4M3", "F32, F16 or BF16"});
  expect_error<CheckpointError>([&] { reader.matrix("absent", 1, 4); }, {"tensor \"absent\"", "missing"});
  EXPECT_EQ(reader.bytes_read(), 0U);
}

TEST_F(Reader, FileChangedSinceItsHeaderWasRead) {
  const auto path = dir_ / "model.safetensors";
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 1);
  TensorReader reader(catalog_);
  expect_error<CheckpointError>(
      [&] { reader.matrix("m", 2, 3); },
      {"model.safetensors", fmt::format("has {} bytes", size - 1), fmt::format("had {}", size), "changed"});
  std::filesystem::remove(path);
  TensorReader another(catalog_);
  expect_error<CheckpointError>([&] { another.matrix("m", 2, 3); }, {"model.safetensors", "cannot open"});
}

}  // namespace
}  // namespace epmoe::checkpoint
