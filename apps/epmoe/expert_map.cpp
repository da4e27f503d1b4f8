#include "expert_map.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace epmoe::cli {
namespace {

std::vector<std::int32_t> numbers(const nlohmann::json& list, const std::string& name, const std::string& file) {
  if (!list.is_array())
    throw ConfigError(fmt::format("{}: {}: {} found, a list of numbers wanted", file, name, list.type_name()));
  std::vector<std::int32_t> values;
  for (const auto& entry : list) {
    const bool fits =
        entry.is_number_integer() && entry.get<std::int64_t>() >= 0 && entry.get<std::int64_t>() <= INT32_MAX;
    if (!fits)
      throw ConfigError(
          fmt::format("{}: {}[{}]: {} found, a number of 0 or more wanted", file, name, values.size(), entry.dump()));
    values.push_back(entry.get<std::int32_t>());
  }
  return values;
}

std::string read_text(const std::string& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  if (stream) text << stream.rdbuf();
  if (!stream) throw ConfigError(fmt::format("--expert-map {}: {}", file, std::strerror(errno)));
  return text.str();
}

}  // namespace

ExpertMap parse_expert_map(const std::string& text, const std::string& file) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) throw ConfigError(fmt::format("--expert-map {}: not JSON", file));
  if (json.is_array()) return {numbers(json, "owner", file), {}};
  if (!json.is_object() || json.size() != 2 || !json.contains("owner") || !json.contains("logical"))
    throw ConfigError(
        fmt::format("--expert-map {}: a list of owner ranks, or an object with owner and logical, wanted", file));
  ExpertMap map{numbers(json["owner"], "owner", file), numbers(json["logical"], "logical", file)};
  if (map.owner.size() != map.logical.size())
    throw ConfigError(fmt::format("--expert-map {}: {} entries in owner, {} in logical; as many wanted", file,
                                  map.owner.size(), map.logical.size()));
  return map;
}

ExpertMap read_expert_map(Job& job, const std::string& file) {
  std::string text;
  job.only_first([&] { text = read_text(file); }, "reading the expert map");
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  const auto bytes =
      job.world().broadcast({begin, begin + text.size()}, 0, job.context(), "broadcasting the expert map");
  return parse_expert_map({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file);
}

}  // namespace epmoe::cli
