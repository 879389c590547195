#include "base/log.h"

#include <fmt/format.h>
#include <memory>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <string>

#include "base/event.h"
#include "base/json.h"

namespace quern {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("quern", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
    return made;
  }();
  return *instance;
}

LogFormat format = LogFormat::text;

std::string quoted(std::string_view text) { return Json(text).dump(); }

/// What is between the braces of a JSON line, after time and level.
std::string members(std::string_view message, std::string_view request_id, std::initializer_list<LogField> fields) {
  std::string out = fmt::format("\"message\":{}", quoted(message));
  if (!request_id.empty()) out += fmt::format(",\"request_id\":{}", quoted(request_id));
  for (const LogField& field : fields) out += fmt::format(",{}:{}", quoted(field.name), field.value.dump());
  return out;
}

}  // namespace

void set_log_format(LogFormat wanted) {
  format = wanted;
  if (wanted == LogFormat::json) logger().set_pattern("{\"time\":\"%Y-%m-%dT%H:%M:%S.%e%z\",\"level\":\"%l\",%v}");
}

void log_request(LogLevel level, std::string_view request_id, std::string_view message,
                 std::initializer_list<LogField> fields) {
  if (!log_enabled(level)) return;
  logger().log(level_of(level), format == LogFormat::json ? members(message, request_id, fields)
                                                          : fmt::format("{} {}", request_id, message));
}

void set_log_level(LogLevel level) { logger().set_level(level_of(level)); }
bool log_enabled(LogLevel level) { return logger().should_log(level_of(level)); }
void log_line(LogLevel level, std::string_view text) {
  format == LogFormat::json ? logger().log(level_of(level), members(text, "", {}))
                            : logger().log(level_of(level), text);
}

}  // namespace quern
