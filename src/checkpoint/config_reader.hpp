#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace epmoe::checkpoint {

/// config.json with typed look-ups. Multimodal models nest the language model's settings under `text_config`; a key is
/// looked for there first. Null counts as absent. A value of the wrong type is a CheckpointError naming the key.
class ConfigReader {
 public:
  explicit ConfigReader(const std::string& text);

  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t absent) const;
  /// The first of several spellings that is there; two that differ are an error.
  [[nodiscard]] std::optional<std::int64_t> integer(std::initializer_list<std::string_view> keys) const;
  /// An error unless it is there and in [low, high].
  [[nodiscard]] std::int64_t required(std::initializer_list<std::string_view> keys, std::int64_t low,
                                      std::int64_t high) const;
  [[nodiscard]] double number(std::string_view key, double absent) const;
  [[nodiscard]] bool boolean(std::string_view key, bool absent) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const;
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key) const;

  /// Which family the model says it is; the nested type if the outer one is a wrapper's.
  [[nodiscard]] std::vector<std::string> model_types() const;
  /// Throws if the weights are quantised, naming the method.
  void refuse_quantized() const;
  [[noreturn]] void refuse(std::string_view key, std::string_view found, std::string_view wanted) const;

 private:
  std::shared_ptr<const nlohmann::json> root_;
  const nlohmann::json* nested_ = nullptr;  // root_'s text_config
  [[nodiscard]] const nlohmann::json* find(std::string_view key) const;
};

}  // namespace epmoe::checkpoint
