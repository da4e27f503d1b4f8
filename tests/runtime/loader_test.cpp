#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "epmoe/checkpoint/synth.hpp"
#include "runtime/kernel_fixture.hpp"

namespace epmoe {
namespace {

namespace fs = std::filesystem;
using test::TestContext;
using test::world_rank;
using test::world_size;
using ::testing::HasSubstr;

/// A directory that rank 0 makes and removes; the others wait for it.
class Directory {
 public:
  Directory(const comm::Communicator& comm, const ExecutionContext& context) : comm_(comm), context_(context) {
    std::string name;
    if (comm.rank() == 0) {
      name = (fs::temp_directory_path() / "epmoe-loader-XXXXXX").string();
      if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(name.data());
    const auto all = comm.broadcast({bytes, bytes + name.size()}, 0, context, "directory");
    path_ = std::string(reinterpret_cast<const char*>(all.data()), all.size());
  }
  ~Directory() {
    comm_.barrier(context_, "directory");
    if (comm_.rank() == 0) fs::remove_all(path_);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  const comm::Communicator& comm_;
  const ExecutionContext& context_;
  fs::path path_;
};

TEST(Loader, EveryRankReadsOnlyItsOwnExpertsBytes) {
  const TestContext context;
  const auto group = test::world_group(context);
  const auto& comm = group->communicator();
  const Directory directory(comm, context);
  std::exception_ptr failure;
  if (world_rank() == 0) {
    try {
      checkpoint::synthesize("olmoe-1b-7b", directory.path(), 0.05, DType::bf16, 3, {});
    } catch (...) {
      failure = std::current_exception();
    }
  }
  comm::agree_or_throw(comm, failure, context, "synthesize");
  const auto loaded = load_model(comm, directory.path(), "", context);
  const auto& tensors = loaded.model.layers.front();
  checkpoint::TensorReader reader(*loaded.catalog);
  const auto placement = Placement::linear(tensors.config.experts, world_size());
  RunConfig run;
  run.compute = ComputeType::bf16;
  run.dispatch = DispatchType::bf16;
  run.combine = CombineType::bf16;
  const MoeLayer layer(group, placement, layer_source(reader, tensors), run, context);
  const auto& c = tensors.config;
  const auto mine = static_cast<std::int64_t>(placement->local_slots(world_rank()).size());
  const auto expert_bytes = 3 * c.hidden * c.intermediate * 2;
  EXPECT_EQ(static_cast<std::int64_t>(reader.bytes_read()), mine * expert_bytes + c.experts * c.hidden * 2);
}

TEST(Loader, AFaultIsTheSameErrorOnAllRanks) {
  const TestContext context;
  const auto group = test::world_group(context);
  const auto& comm = group->communicator();
  const Directory directory(comm, context);
  std::string message;
  try {
    load_model(comm, directory.path(), "", context);
  } catch (const CheckpointError& error) {
    message = error.what();
  }
  EXPECT_THAT(message, HasSubstr("config.json"));
  for (const auto& other : comm.all_gather(std::as_bytes(std::span(message)), context, "messages"))
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(other.data()), other.size()), message);
}

TEST(Loader, ARouterWeightThatIsNoNumberIsNamed) {
  const TestContext context;
  const auto group = test::world_group(context);
  RandomLayer random(test::small_config(16, 8, 8, 2), DType::f32, 1);
  auto source = random.source();
  std::vector<float> router(8 * 16, 0.5F);
  router[3 * 16 + 5] = NAN;
  source.router = const_matrix_view(router.data(), 8, 16);
  std::string message;
  try {
    const MoeLayer layer(group, Placement::linear(8, world_size()), source, {}, context);
  } catch (const InputError& error) {
    message = error.what();
  }
  EXPECT_THAT(message, HasSubstr("expert 3, column 5"));
}

TEST(Loader, AFileThatOneRankAloneCannotReadStopsAll) {
  const TestContext context;
  const auto group = test::world_group(context);
  const auto& comm = group->communicator();
  for (int bad = 0; bad < world_size(); ++bad) {
    RandomLayer random(test::small_config(16, 8, 8, 2), DType::f32, 1);
    auto source = random.source();
    const auto expert = source.expert;
    if (world_rank() == bad)
      source.expert = [&](std::int32_t) -> ExpertWeights {
        throw CheckpointError("model-2.safetensors: cannot be read");
      };
    std::string message;
    try {
      const MoeLayer layer(group, Placement::linear(8, world_size()), source, {}, context);
    } catch (const CheckpointError& error) {
      message = error.what();
    }
    EXPECT_THAT(message, HasSubstr("model-2.safetensors"));
    EXPECT_THAT(message, HasSubstr("rank " + std::to_string(bad)));
  }
  comm.barrier(context, "end");
}

}  // namespace
}  // namespace epmoe
