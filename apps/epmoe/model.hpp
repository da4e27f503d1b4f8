#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "epmoe/runtime/moe_layer.hpp"
#include "job.hpp"

namespace epmoe::cli {

/// The MoE layers to run, from a checkpoint or made up.
class Model {
 public:
  virtual ~Model() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::string family() const = 0;
  [[nodiscard]] virtual std::int64_t decoder_layers() const = 0;
  [[nodiscard]] virtual std::vector<std::int64_t> moe_layers() const = 0;
  [[nodiscard]] virtual DType dtype() const = 0;
  /// Shape of a MoE layer; nothing is read.
  [[nodiscard]] virtual const MoeConfig& config(std::int64_t layer) const = 0;
  /// Where a layer's weights come from; valid until the next call for a layer, or release(). Local, may throw on one
  /// rank only.
  virtual LayerSource source(std::int64_t layer) = 0;
  /// Bytes of tensors read by this rank through source() since the last reset.
  [[nodiscard]] virtual std::uint64_t bytes_read() const = 0;
  /// Forgets the latest source: its pages and its count of bytes.
  virtual void release() = 0;
  /// Bytes of headers that rank 0 read for all.
  [[nodiscard]] virtual std::uint64_t header_bytes() const = 0;
  /// Files that are read; none for a made-up model.
  [[nodiscard]] virtual std::vector<std::string> files() const { return {}; }
  [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }
};

/// Collective. An empty `dir` makes the built-in model from `seed`.
std::unique_ptr<Model> open_model(Job& job, const std::string& dir, const std::string& family, std::uint64_t seed);

/// The layers that --layers asks for ("": the first MoE layer). ConfigError listing the MoE layers if one is dense or
/// not there.
std::vector<std::int64_t> select_layers(const Model& model, const std::string& wanted);

}  // namespace epmoe::cli
