#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "checkpoint/files.hpp"
#include "epmoe/checkpoint/safetensors.hpp"

namespace epmoe::checkpoint {
namespace {

using namespace epmoe::test;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Writer : public ::testing::Test {
 protected:
  TempDir dir_;
  std::vector<float> f32_{1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F};
  std::vector<bf16> bf16_{to_bf16(0.5F), to_bf16(-1.0F)};
  std::vector<f16> f16_{to_f16(2.0F)};
  std::vector<std::int32_t> i32_{7, -1};
  [[nodiscard]] std::vector<TensorToWrite> tensors() const {
    return {{"half", const_matrix_view(f16_.data(), 1, 1), {}},
            {"z", const_matrix_view(f32_.data(), 2, 3), {}},
            {"ids", const_matrix_view(i32_.data(), 1, 2), {2}},
            {"brain", const_matrix_view(bf16_.data(), 2, 1), {}},
            {"a", const_matrix_view(f32_.data(), 2, 2, 3), {}}};
  }
};

TEST_F(Writer, WritesTheBytesOfTheReferenceWriter) {
  write_safetensors(dir_ / "out.safetensors", tensors());
  std::string header =
      R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"z":{"dtype":"F32","shape":[2,3],"data_offsets":[16,40]},)"
      R"("ids":{"dtype":"I32","shape":[2],"data_offsets":[40,48]},"brain":{"dtype":"BF16","shape":[2,1],"data_offsets":[48,52]},)"
      R"("half":{"dtype":"F16","shape":[1,1],"data_offsets":[52,54]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  std::string data;
  const auto add = [&](const void* from, std::size_t bytes) { data.append(static_cast<const char*>(from), bytes); };
  add(f32_.data(), 8);
  add(f32_.data() + 3, 8);  // the second row of a strided view
  add(f32_.data(), 24);
  add(i32_.data(), 8);
  add(bf16_.data(), 4);
  add(f16_.data(), 2);
  EXPECT_EQ(read_file(dir_ / "out.safetensors"), length_bytes(header.size()) + header + data);
  EXPECT_THAT(dir_.names(), ElementsAre("out.safetensors"));
}

TEST_F(Writer, EqualTensorsGiveEqualFilesInAnyOrder) {
  auto list = tensors();
  write_safetensors(dir_ / "one", list);
  std::reverse(list.begin(), list.end());
  write_safetensors(dir_ / "two", list);
  EXPECT_EQ(read_file(dir_ / "one"), read_file(dir_ / "two"));
}

TEST_F(Writer, WhatWasWrittenCanBeRead) {
  write_safetensors(dir_ / "out.safetensors", tensors());
  const Catalog catalog = Catalog::read(dir_ / "out.safetensors");
  TensorReader reader(catalog);
  float row[3] = {};
  read_row(reader.matrix("z", 2, 3), 1, row);
  EXPECT_THAT(row, ElementsAre(4.0F, 5.0F, 6.0F));
  read_row(reader.matrix("a", 2, 2), 1, row);
  EXPECT_EQ(row[0], 4.0F);
  read_row(reader.matrix("brain", 2, 1), 1, row);
  EXPECT_EQ(row[0], -1.0F);
}

TEST_F(Writer, NothingAndEmptyTensors) {
  write_safetensors(dir_ / "none.safetensors", {});
  EXPECT_EQ(read_file(dir_ / "none.safetensors"), length_bytes(8) + "{}      ");
  const std::vector<TensorToWrite> empty{{"e", const_matrix_view(static_cast<const float*>(nullptr), 0, 5), {}}};
  write_safetensors(dir_ / "empty.safetensors", empty);
  EXPECT_EQ(Catalog::read(dir_ / "empty.safetensors").at("e").shape, (std::vector<std::int64_t>{0, 5}));
}

TEST_F(Writer, LargeTensorsPassTheBuffer) {
  std::vector<float> big(700'000);
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<float>(i);
  const std::vector<TensorToWrite> list{{"rows", const_matrix_view(big.data(), 700, 1000), {}},
                                        {"one", const_matrix_view(big.data(), 1, 700'000), {}}};
  write_safetensors(dir_ / "out", list);
  const Catalog catalog = Catalog::read(dir_ / "out");
  TensorReader reader(catalog);
  float row[1000];
  read_row(reader.matrix("rows", 700, 1000), 699, row);
  EXPECT_EQ(row[999], 699'999.0F);
  EXPECT_EQ(std::memcmp(reader.matrix("one", 1, 700'000).data, big.data(), big.size() * 4), 0);
}

TEST_F(Writer, TensorsThatCannotBeWritten) {
  auto twice = tensors();
  twice.push_back(twice.front());
  expect_error<InputError>([&] { write_safetensors(dir_ / "out", twice); }, {"\"half\"", "twice"});
  const std::vector<std::int8_t> bytes(4);
  const std::vector<TensorToWrite> i8{{"x", const_matrix_view(bytes.data(), 1, 4), {}}};
  expect_error<InputError>([&] { write_safetensors(dir_ / "out", i8); }, {"\"x\"", "i8", "f32, f16, bf16 or i32"});
  const std::vector<TensorToWrite> shape{{"x", const_matrix_view(f32_.data(), 2, 3), {5}}};
  expect_error<InputError>([&] { write_safetensors(dir_ / "out", shape); }, {"\"x\"", "[5]", "6 elements"});
  const std::vector<TensorToWrite> name{{"\xff", const_matrix_view(f32_.data(), 2, 3), {}}};
  expect_error<InputError>([&] { write_safetensors(dir_ / "out", name); }, {"UTF-8"});
  const std::vector<TensorToWrite> kept{{"__metadata__", const_matrix_view(f32_.data(), 2, 3), {}}};
  expect_error<InputError>([&] { write_safetensors(dir_ / "out", kept); }, {"__metadata__"});
  EXPECT_THAT(dir_.names(), IsEmpty());
}

TEST_F(Writer, UnwritablePlacesLeaveNothing) {
  expect_error<CheckpointError>([&] { write_safetensors(dir_ / "absent/out", tensors()); },
                                {"absent/out", "cannot write", "No such file"});
  write_file(dir_ / "file", "x");
  expect_error<CheckpointError>([&] { write_safetensors(dir_ / "file/out", tensors()); }, {"file/out", "cannot write"});
  std::filesystem::create_directory(dir_ / "taken");
  expect_error<CheckpointError>([&] { write_safetensors(dir_ / "taken", tensors()); }, {"taken", "regular file"});
  EXPECT_THAT(dir_.names(), ElementsAre("file", "taken"));
  if (::geteuid() != 0) {  // root may write anywhere
    std::filesystem::permissions(dir_ / "taken",
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
    expect_error<CheckpointError>([&] { write_safetensors(dir_ / "taken/out", tensors()); },
                                  {"cannot write", "Permission denied"});
  }
}

TEST_F(Writer, LinksAreFollowedAndPipesRefused) {
  std::filesystem::create_symlink("real", dir_ / "link");
  write_safetensors(dir_ / "link", tensors());  // the link's target is not there yet
  EXPECT_TRUE(std::filesystem::is_symlink(dir_ / "link"));
  const auto first = read_file(dir_ / "real");
  write_safetensors(dir_ / "link", tensors());
  EXPECT_TRUE(std::filesystem::is_symlink(dir_ / "link"));
  EXPECT_EQ(read_file(dir_ / "real"), first);
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  expect_error<CheckpointError>([&] { write_safetensors(dir_ / "pipe", tensors()); }, {"pipe", "regular file"});
  EXPECT_TRUE(std::filesystem::is_fifo(dir_ / "pipe"));
}

TEST_F(Writer, FailureHalfWayKeepsTheOldFile) {
  write_file(dir_ / "out", "old");
  std::vector<float> big(std::size_t{3} << 20);
  const std::vector<TensorToWrite> list{{"x", const_matrix_view(big.data(), 3, 1 << 20), {}}};
  // A file size limit makes write() fail after the first megabytes, as a full disk would.
  struct rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = old;
  small.rlim_cur = rlim_t{5} << 20;
  ::setrlimit(RLIMIT_FSIZE, &small);
  expect_error<CheckpointError>([&] { write_safetensors(dir_ / "out", list); },
                                {"out", "cannot write", "File too large"});
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_file(dir_ / "out"), "old");
  EXPECT_THAT(dir_.names(), ElementsAre("out"));
}

}  // namespace
}  // namespace epmoe::checkpoint
