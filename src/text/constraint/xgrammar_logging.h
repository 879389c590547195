// Stands for XGrammar's support/logging.h when its sources are compiled (cmake/xgrammar.cmake; C++17). A failed check
// throws what it says, and a warning tells note_warning: from a destructor, so that nothing may be thrown there.
#pragma once
#define XGRAMMAR_SUPPORT_LOGGING_H_

#include <ctime>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace xgrammar {

class LogFatalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thread: the one that compiles. Defined in compiler.cc.
void note_warning(std::ostringstream& text) noexcept;

class LogFatal {
 public:
  LogFatal() = default;
  LogFatal(const LogFatal&) = delete;
  LogFatal& operator=(const LogFatal&) = delete;
  [[noreturn]] ~LogFatal() noexcept(false) { throw LogFatalError(stream_.str()); }
  std::ostringstream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

class LogWarning {
 public:
  LogWarning() = default;
  LogWarning(const LogWarning&) = delete;
  LogWarning& operator=(const LogWarning&) = delete;
  ~LogWarning() { note_warning(stream_); }
  std::ostringstream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

/// Progress is of no interest.
class LogNothing {
 public:
  std::ostringstream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

}  // namespace xgrammar

#define XGRAMMAR_LOG_INFO ::xgrammar::LogNothing().stream()
#define XGRAMMAR_LOG_DEBUG ::xgrammar::LogNothing().stream()
#define XGRAMMAR_LOG_WARNING ::xgrammar::LogWarning().stream()
#define XGRAMMAR_LOG_FATAL ::xgrammar::LogFatal().stream()
#define XGRAMMAR_LOG(level) XGRAMMAR_LOG_##level
#define XGRAMMAR_CHECK(condition) \
  if (!(condition)) ::xgrammar::LogFatal().stream()
#define XGRAMMAR_ICHECK(condition) \
  if (!(condition)) ::xgrammar::LogFatal().stream() << "an internal check failed: " #condition " "
#define XGRAMMAR_DCHECK(condition) \
  while (false) XGRAMMAR_ICHECK(condition)
