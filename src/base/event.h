// Log lines about a request, and the form of all lines: text for people, or one JSON object each for machines. Any
// thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/log.h"

namespace quern {

enum class LogFormat { text, json };
/// Before the first line.
void set_log_format(LogFormat format);

struct LogField {
  std::string_view name;
  Json value;
};

/// Text: "ID MESSAGE". JSON: the fields "request_id" and "message", and those given.
void log_request(LogLevel level, std::string_view request_id, std::string_view message,
                 std::initializer_list<LogField> fields = {});

}  // namespace quern
