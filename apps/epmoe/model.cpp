#include "model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "epmoe/runtime/checkpoint_loader.hpp"
#include "epmoe/runtime/random_model.hpp"
#include "run_options.hpp"

namespace epmoe::cli {
namespace {

class CheckpointModel final : public Model {
 public:
  CheckpointModel(std::string dir, LoadedModel loaded) : dir_(std::move(dir)), loaded_(std::move(loaded)) {}
  [[nodiscard]] std::string name() const override { return dir_; }
  [[nodiscard]] std::string family() const override { return loaded_.model.family; }
  [[nodiscard]] std::int64_t decoder_layers() const override { return loaded_.model.num_hidden_layers; }
  [[nodiscard]] std::vector<std::int64_t> moe_layers() const override {
    std::vector<std::int64_t> layers;
    for (const auto& layer : loaded_.model.layers) layers.push_back(layer.layer);
    return layers;
  }
  [[nodiscard]] DType dtype() const override { return loaded_.model.dtype; }
  [[nodiscard]] const MoeConfig& config(std::int64_t layer) const override { return tensors(layer).config; }
  LayerSource source(std::int64_t layer) override {
    reader_ = std::make_unique<checkpoint::TensorReader>(*loaded_.catalog);
    return layer_source(*reader_, tensors(layer));
  }
  [[nodiscard]] std::uint64_t bytes_read() const override { return reader_ ? reader_->bytes_read() : 0; }
  void release() override { reader_.reset(); }
  [[nodiscard]] std::uint64_t header_bytes() const override { return loaded_.header_bytes; }
  [[nodiscard]] std::vector<std::string> files() const override {
    std::vector<std::string> files{dir_ + "/config.json", dir_ + "/model.safetensors.index.json"};
    for (const auto& file : loaded_.catalog->files()) files.push_back(file.string());
    return files;
  }
  [[nodiscard]] std::vector<std::string> notes() const override {
    auto notes = loaded_.catalog->notes();
    notes.insert(notes.end(), loaded_.model.notes.begin(), loaded_.model.notes.end());
    return notes;
  }

 private:
  [[nodiscard]] const checkpoint::LayerTensors& tensors(std::int64_t layer) const {
    const auto& layers = loaded_.model.layers;
    return *std::find_if(layers.begin(), layers.end(), [&](const auto& l) { return l.layer == layer; });
  }
  std::string dir_;
  LoadedModel loaded_;
  std::unique_ptr<checkpoint::TensorReader> reader_;
};

class BuiltInModel final : public Model {
 public:
  explicit BuiltInModel(std::uint64_t seed) : config_(default_model_config()), seed_(seed) {}
  [[nodiscard]] std::string name() const override { return "built-in"; }
  [[nodiscard]] std::string family() const override { return "qwen3_moe"; }
  [[nodiscard]] std::int64_t decoder_layers() const override { return kLayers; }
  [[nodiscard]] std::vector<std::int64_t> moe_layers() const override {
    std::vector<std::int64_t> layers(kLayers);
    std::iota(layers.begin(), layers.end(), 0);
    return layers;
  }
  [[nodiscard]] DType dtype() const override { return DType::bf16; }
  [[nodiscard]] const MoeConfig& config(std::int64_t) const override { return config_; }
  LayerSource source(std::int64_t layer) override {
    weights_ = std::make_unique<RandomLayer>(config_, dtype(), seed_, layer);
    return weights_->source();
  }
  [[nodiscard]] std::uint64_t bytes_read() const override { return 0; }
  void release() override { weights_.reset(); }
  [[nodiscard]] std::uint64_t header_bytes() const override { return 0; }

 private:
  static constexpr std::int64_t kLayers = 4;
  MoeConfig config_;
  std::uint64_t seed_;
  std::unique_ptr<RandomLayer> weights_;
};

}  // namespace

std::unique_ptr<Model> open_model(Job& job, const std::string& dir, const std::string& family, std::uint64_t seed) {
  if (dir.empty()) return std::make_unique<BuiltInModel>(seed);
  return std::make_unique<CheckpointModel>(dir, load_model(job.world(), dir, family, job.context()));
}

std::vector<std::int64_t> select_layers(const Model& model, const std::string& wanted) {
  const auto there = model.moe_layers();
  if (there.empty()) throw ConfigError(fmt::format("{}: no MoE layers", model.name()));
  if (wanted.empty()) return {there.front()};
  if (wanted == "all") return there;
  const auto layers = parse_layer_list(wanted);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto layer = layers[i];
    if (std::find(there.begin(), there.end(), layer) == there.end())
      throw ConfigError(fmt::format("--layers {}: layer {} is {}; MoE layers are {}", wanted, layer,
                                    layer < model.decoder_layers() ? "dense" : "not in the model",
                                    fmt::join(there, ", ")));
    if (std::find(layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(i), layer) !=
        layers.begin() + static_cast<std::ptrdiff_t>(i))
      throw ConfigError(fmt::format("--layers {}: layer {} is named twice", wanted, layer));
  }
  return layers;
}

}  // namespace epmoe::cli
