#include "logger.hpp"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <array>

#include "epmoe/core/error.hpp"

namespace epmoe::cli {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::trace: return spdlog::level::trace;
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warn: return spdlog::level::warn;
    case LogLevel::error: break;
  }
  return spdlog::level::err;
}

class SpdlogLogger final : public Logger {
 public:
  SpdlogLogger(spdlog::level::level_enum level, int rank)
      : logger_("epmoe", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger_.set_level(level);
    logger_.set_pattern(fmt::format("[%H:%M:%S.%e] [rank {}] [%l] %v", rank));
    logger_.flush_on(spdlog::level::trace);
  }
  void log(LogLevel level, std::string_view message) override {
    logger_.log(to_spdlog(level), "{}", spdlog::string_view_t(message.data(), message.size()));
  }

 private:
  spdlog::logger logger_;
};

}  // namespace

std::unique_ptr<Logger> make_logger(const std::string& level, int rank) {
  constexpr std::array names{"trace", "debug", "info", "warn", "error", "off"};
  constexpr std::array levels{spdlog::level::trace, spdlog::level::debug, spdlog::level::info,
                              spdlog::level::warn,  spdlog::level::err,   spdlog::level::off};
  const auto found = std::find(names.begin(), names.end(), level);
  if (found == names.end())
    throw ConfigError(fmt::format("--log-level {}: unknown; known are trace, debug, info, warn, error, off", level));
  return std::make_unique<SpdlogLogger>(levels[static_cast<std::size_t>(found - names.begin())], rank);
}

}  // namespace epmoe::cli
