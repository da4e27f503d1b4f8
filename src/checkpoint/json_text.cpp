#include "checkpoint/json_text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <vector>

#include "checkpoint/text.hpp"

namespace epmoe::checkpoint {
namespace {

constexpr int kMaxDepth = 64;

struct OpenObject {
  std::unordered_set<std::string> keys;
  std::string current;
};

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::filesystem::path& file) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<OpenObject> open;
  const auto on_event = [&](int depth, Event event, nlohmann::json& parsed) {
    switch (event) {
      case Event::object_start: open.emplace_back(); [[fallthrough]];
      case Event::array_start:
        if (depth > kMaxDepth) fail(file, fmt::format("JSON nested deeper than {} levels", kMaxDepth));
        break;
      case Event::object_end: open.pop_back(); break;
      case Event::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!open.back().keys.insert(key).second)
          fail(file, open.size() == 1 ? fmt::format("duplicate key {}, wanted each name once", in_quotes(key))
                                      : fmt::format("duplicate key {} in {}, wanted each name once", in_quotes(key),
                                                    in_quotes(open[open.size() - 2].current)));
        open.back().current = key;
        break;
      }
      default: break;
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), on_event);
  } catch (const nlohmann::json::exception& error) {
    fail(file, fmt::format("not valid JSON: {}", in_quotes(error.what())));
  }
}

}  // namespace epmoe::checkpoint
