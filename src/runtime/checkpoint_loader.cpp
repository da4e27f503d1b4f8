#include "epmoe/runtime/checkpoint_loader.hpp"

#include <cstring>
#include <exception>

namespace epmoe {
namespace {

/// Config text and catalog in one buffer: 8 bytes of text length, the text, the catalog.
std::vector<std::byte> pack(const std::string& config, const std::vector<std::byte>& catalog) {
  const std::uint64_t size = config.size();
  std::vector<std::byte> bytes(sizeof size + config.size() + catalog.size());
  std::memcpy(bytes.data(), &size, sizeof size);
  std::memcpy(bytes.data() + sizeof size, config.data(), config.size());
  if (!catalog.empty()) std::memcpy(bytes.data() + sizeof size + config.size(), catalog.data(), catalog.size());
  return bytes;
}

}  // namespace

LoadedModel load_model(const comm::Communicator& comm, const std::filesystem::path& directory,
                       const std::string& family, const ExecutionContext& context) {
  std::vector<std::byte> bytes;
  std::uint64_t header_bytes = 0;
  std::exception_ptr failure;
  if (comm.rank() == 0) {
    try {
      const auto config = checkpoint::read_config(directory);  // first: its absence says what the directory is not
      const auto read = checkpoint::Catalog::read(directory);
      header_bytes = read.header_bytes_read();
      bytes = pack(config, read.serialize());
    } catch (...) {
      failure = std::current_exception();
    }
  }
  comm::agree_or_throw(comm, failure, context, "reading the checkpoint's headers");
  bytes = comm.broadcast(std::move(bytes), 0, context, "broadcasting the checkpoint's headers");

  // Everything below is a function of the broadcast bytes, so all ranks fail alike.
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  const std::string config(reinterpret_cast<const char*>(bytes.data()) + sizeof size, size);
  const auto catalog = std::make_shared<checkpoint::Catalog>(
      checkpoint::Catalog::deserialize(std::span<const std::byte>(bytes).subspan(sizeof size + size)));
  auto model = checkpoint::describe_model(config, *catalog, family);
  return {catalog, std::move(model), header_bytes};
}

LayerSource layer_source(checkpoint::TensorReader& reader, const checkpoint::LayerTensors& tensors) {
  LayerSource source;
  source.config = tensors.config;
  source.layer = tensors.layer;
  source.router = checkpoint::read_router(reader, tensors);
  source.correction_bias = checkpoint::read_correction_bias(reader, tensors);
  source.expert = [&reader, tensors](std::int32_t e) { return checkpoint::read_expert(reader, tensors, e); };
  source.shared = checkpoint::read_shared(reader, tensors);
  source.shared_gate = checkpoint::read_shared_gate(reader, tensors);
  return source;
}

}  // namespace epmoe
