#include "checkpoint/files.hpp"
#include "epmoe/checkpoint/safetensors.hpp"

namespace epmoe::checkpoint {
namespace {

using namespace epmoe::test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Index : public ::testing::Test {
 protected:
  TempDir dir_;
  void shard(const std::string& file, const std::vector<FileTensor>& entries) {
    write_file(dir_ / file, safetensors(entries));
  }
  void index(const std::string& weight_map) {
    write_file(dir_ / "model.safetensors.index.json",
               R"({"metadata":{"total_size":1},"weight_map":)" + weight_map + "}");
  }
  void refused(std::vector<std::string> parts) {
    expect_error<CheckpointError>([&] { Catalog::read(dir_.path()); }, parts);
  }
  void two_shards() {
    shard("model-00001-of-00002.safetensors", {{"a", {2}}, {"b", {3}}});
    shard("model-00002-of-00002.safetensors", {{"c", {4}}});
    index(
        R"({"a":"model-00001-of-00002.safetensors","b":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors"})");
  }
};

TEST_F(Index, FindsTensorsInTheirShards) {
  two_shards();
  const Catalog catalog = Catalog::read(dir_.path());
  ASSERT_EQ(catalog.files().size(), 2U);
  EXPECT_EQ(catalog.files()[catalog.at("b").file].filename(), "model-00001-of-00002.safetensors");
  EXPECT_EQ(catalog.files()[catalog.at("c").file].filename(), "model-00002-of-00002.safetensors");
  EXPECT_TRUE(catalog.notes().empty());
}

TEST_F(Index, MissingShardFailsAndSaysWhatItHeld) {
  two_shards();
  std::filesystem::remove(dir_ / "model-00001-of-00002.safetensors");
  refused({"model.safetensors.index.json", "1 of 2 shards are missing", "model-00001-of-00002.safetensors", "2 tensors",
           "\"a\""});
}

TEST_F(Index, StaleIndexBesideCompleteShards) {
  two_shards();
  index(
      R"({"a":"model-00001-of-00003.safetensors","b":"model-00002-of-00003.safetensors","c":"model-00003-of-00003.safetensors"})");
  refused({"3 of 3 shards are missing", "model-00001-of-00003.safetensors", "2 files that the index does not name",
           "hold all of these tensors", "the index is stale"});
  index(
      R"({"a":"model-00001-of-00003.safetensors","d":"model-00002-of-00003.safetensors","c":"model-00003-of-00003.safetensors"})");
  refused({"3 of 3 shards are missing", "lack 1 of these tensors, the first \"d\""});
}

TEST_F(Index, ShardWithoutATensorOfItsOwn) {
  two_shards();
  shard("model-00001-of-00002.safetensors", {{"a", {2}}});
  refused({"model-00001-of-00002.safetensors", "lacks 1 tensor", "\"b\""});
}

TEST_F(Index, StrayFilesAndTensorsAreNotedAndIgnored) {
  two_shards();
  shard("consolidated.safetensors", {{"x", {1}}});
  shard("model-00002-of-00002.safetensors", {{"c", {4}}, {"a", {2}}});
  const Catalog catalog = Catalog::read(dir_.path());
  EXPECT_EQ(catalog.find("x"), nullptr);
  EXPECT_EQ(catalog.files()[catalog.at("a").file].filename(), "model-00001-of-00002.safetensors");
  EXPECT_THAT(catalog.notes(), ElementsAre(HasSubstr("model-00002-of-00002.safetensors: 1 tensor that "
                                                     "model.safetensors.index.json does not place there: \"a\""),
                                           HasSubstr("consolidated.safetensors: not named")));
}

TEST_F(Index, ShardsWithoutAnIndexAreRefused) {
  two_shards();
  std::filesystem::remove(dir_ / "model.safetensors.index.json");
  refused({"2 safetensors files", "model-00001-of-00002.safetensors", "no model.safetensors.index.json"});
}

TEST_F(Index, SingleFileUnderAnyNameNeedsNoIndex) {
  shard("weights.safetensors", {{"a", {2}}});
  EXPECT_NE(Catalog::read(dir_.path()).find("a"), nullptr);
  EXPECT_NE(Catalog::read(dir_ / "weights.safetensors").find("a"), nullptr);
  shard("model.safetensors", {{"b", {2}}});
  const Catalog catalog = Catalog::read(dir_.path());
  EXPECT_EQ(catalog.find("a"), nullptr);
  EXPECT_NE(catalog.find("b"), nullptr);
  EXPECT_THAT(catalog.notes(), ElementsAre(HasSubstr("weights.safetensors: ignored")));
}

TEST_F(Index, FileNamesStayInTheDirectory) {
  two_shards();
  for (const char* name :
       {"../other.safetensors", "sub/other.safetensors", "/etc/passwd", "..", ".", "", "a\\\\b", "x..y", "a\\u0000b"}) {
    index(fmt::format(R"({{"a":"{}"}})", name));
    refused({"model.safetensors.index.json", "tensor \"a\"", "wanted the name of a file in the same directory"});
  }
}

TEST_F(Index, BrokenIndex) {
  two_shards();
  const auto path = dir_ / "model.safetensors.index.json";
  write_file(path, "{");
  refused({"model.safetensors.index.json", "not valid JSON"});
  write_file(path, "[]");
  refused({"model.safetensors.index.json", "weight_map"});
  write_file(path, "{}");
  refused({"model.safetensors.index.json", "weight_map"});
  index(R"({"a":1})");
  refused({"tensor \"a\"", "wanted a file name"});
  index("{}");
  refused({"names no tensor"});
  index(R"({"a":"model-00001-of-00002.safetensors","a":"model-00002-of-00002.safetensors"})");
  refused({"duplicate key \"a\" in \"weight_map\""});
  write_file(path, "version https://git-lfs.github.com/spec/v1\n");
  refused({"model.safetensors.index.json", "Git LFS pointer"});
}

TEST_F(Index, CatalogTravelsAsBytes) {
  two_shards();
  shard("stray.safetensors", {{"x", {}}});
  const Catalog catalog = Catalog::read(dir_.path());
  const std::vector<std::byte> bytes = catalog.serialize();
  const Catalog copy = Catalog::deserialize(bytes);
  EXPECT_EQ(copy.tensors(), catalog.tensors());
  EXPECT_EQ(copy.files(), catalog.files());
  EXPECT_EQ(copy.file_sizes(), catalog.file_sizes());
  EXPECT_EQ(copy.notes(), catalog.notes());
  EXPECT_EQ(copy.header_bytes_read(), 0U);
  EXPECT_GT(catalog.header_bytes_read(), 0U);
  TensorReader reader(copy);
  EXPECT_EQ(reader.matrix("c", 1, 4).cols, 4);

  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(Catalog::deserialize(std::span(bytes).first(size)), CheckpointError);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::vector<std::byte> damaged = bytes;
    damaged[i] ^= std::byte{0x80};
    try {
      Catalog::deserialize(damaged);
    } catch (const CheckpointError&) {
    }
  }
}

}  // namespace
}  // namespace epmoe::checkpoint
