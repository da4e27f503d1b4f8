#include "checkpoint/config_reader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/file.hpp"
#include "checkpoint/json_text.hpp"
#include "checkpoint/text.hpp"
#include "epmoe/checkpoint/family.hpp"

namespace epmoe::checkpoint {
namespace {

constexpr const char* kFile = "config.json";

}  // namespace

std::string read_config(const std::filesystem::path& dir) {
  return read_text(dir / kFile);
}

ConfigReader::ConfigReader(const std::string& text)
    : root_(std::make_shared<const nlohmann::json>(parse_json(text, kFile))) {
  if (!root_->is_object()) fail(kFile, fmt::format("holds {}, wanted an object", root_->type_name()));
  const auto nested = root_->find("text_config");
  if (nested != root_->end() && nested->is_object()) nested_ = &*nested;
}

const nlohmann::json* ConfigReader::find(std::string_view key) const {
  for (const nlohmann::json* object : {nested_, root_.get()}) {
    if (object == nullptr) continue;
    const auto found = object->find(std::string(key));
    if (found != object->end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

void ConfigReader::refuse(std::string_view key, std::string_view found, std::string_view wanted) const {
  fail(kFile, fmt::format("{} is {}, wanted {}", key, found, wanted));
}

std::optional<std::int64_t> ConfigReader::integer(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool fits =
      value->is_number_integer() && !(value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX);
  if (!fits) refuse(key, in_quotes(value->dump()), "an integer");
  return value->get<std::int64_t>();
}

std::int64_t ConfigReader::integer(std::string_view key, std::int64_t absent) const {
  return integer(key).value_or(absent);
}

std::optional<std::int64_t> ConfigReader::integer(std::initializer_list<std::string_view> keys) const {
  std::optional<std::int64_t> chosen;
  std::string_view chosen_key;
  for (const std::string_view key : keys) {
    const auto value = integer(key);
    if (!value) continue;
    if (chosen && *chosen != *value)
      refuse(key, fmt::format("{}", *value), fmt::format("{} as {} says", *chosen, chosen_key));
    if (!chosen) chosen_key = key;
    chosen = value;
  }
  return chosen;
}

std::int64_t ConfigReader::required(std::initializer_list<std::string_view> keys, std::int64_t low,
                                    std::int64_t high) const {
  const auto value = integer(keys);
  std::string_view used = *keys.begin();
  for (const std::string_view key : keys)
    if (has(key)) {
      used = key;
      break;
    }
  const std::string wanted = fmt::format("{} to {}", low, high);
  if (!value) refuse(used, "missing or null", wanted);
  if (*value < low || *value > high) refuse(used, fmt::format("{}", *value), wanted);
  return *value;
}

double ConfigReader::number(std::string_view key, double absent) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_number()) refuse(key, in_quotes(value->dump()), "a number");
  return value->get<double>();
}

bool ConfigReader::boolean(std::string_view key, bool absent) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) refuse(key, in_quotes(value->dump()), "true or false");
  return value->get<bool>();
}

std::optional<std::string> ConfigReader::text(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(key, in_quotes(value->dump()), "a string");
  return value->get<std::string>();
}

std::vector<std::int64_t> ConfigReader::integers(std::string_view key) const {
  std::vector<std::int64_t> out;
  const nlohmann::json* value = find(key);
  if (value == nullptr) return out;
  if (!value->is_array()) refuse(key, in_quotes(value->dump()), "an array of integers");
  for (const auto& item : *value) {
    if (!item.is_number_integer()) refuse(key, in_quotes(value->dump()), "an array of integers");
    out.push_back(item.get<std::int64_t>());
  }
  return out;
}

std::vector<std::string> ConfigReader::model_types() const {
  std::vector<std::string> types;
  for (const nlohmann::json* object : {nested_, root_.get()}) {
    if (object == nullptr) continue;
    const auto found = object->find("model_type");
    if (found == object->end() || found->is_null()) continue;
    if (!found->is_string()) refuse("model_type", in_quotes(found->dump()), "a string");
    types.push_back(found->get<std::string>());
  }
  return types;
}

void ConfigReader::refuse_quantized() const {
  for (const char* key : {"quantization_config", "compression_config"}) {
    const nlohmann::json* value = find(key);
    if (value == nullptr) continue;
    std::string method = "unknown";
    if (value->is_object())
      if (const auto found = value->find("quant_method"); found != value->end() && found->is_string())
        method = found->get<std::string>();
    fail(kFile,
         fmt::format("{} says the weights are quantised (quant_method {}); only F32, F16 and BF16 checkpoints are "
                     "supported yet",
                     key, in_quotes(method)));
  }
}

}  // namespace epmoe::checkpoint
