#include "apps/measure/machine_facts.h"

#include <charconv>
#include <ctime>
#include <fstream>
#include <sstream>
#include <sys/utsname.h>
#include <thread>

#include "apps/commands.h"
#include "base/thread_pool.h"

namespace quern {
namespace {

/// Files of /proc say that they are empty.
std::string read_proc(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Processors of ARM do not say their clock there.
Json number_or_null(const std::string& text) {
  double value = 0.0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec == std::errc() ? Json(value) : Json();
}

}  // namespace

std::string proc_value(std::string_view text, std::string_view key) {
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line = text.substr(start, end - start);
    start = end + 1;
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !line.starts_with(key)) continue;
    if (line.substr(key.size(), colon - key.size()).find_first_not_of(" \t") != std::string_view::npos) continue;
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string_view::npos ? "" : std::string(line.substr(value));
  }
  return "";
}

Json machine_facts() {
  const std::string processor = read_proc("/proc/cpuinfo");
  const Json kilobytes = number_or_null(proc_value(read_proc("/proc/meminfo"), "MemTotal"));
  utsname system{};
  uname(&system);
  timespec resolution{};
  clock_getres(CLOCK_MONOTONIC, &resolution);
  return Json::Object{
      {"version", quern_version},
      {"git_hash", git_hash.empty() ? Json() : Json(git_hash)},
      {"cpu", proc_value(processor, "model name")},
      {"cpu_mhz", number_or_null(proc_value(processor, "cpu MHz"))},
      {"cores", static_cast<int64_t>(std::thread::hardware_concurrency())},
      {"usable_cores", usable_cores()},
      {"memory_bytes", kilobytes.is_null() ? Json() : Json(static_cast<int64_t>(kilobytes.as_number() * 1024))},
      {"kernel", system.release},
      {"architecture", system.machine},
      {"clock", "monotonic"},
      {"clock_resolution_ns", static_cast<int64_t>(resolution.tv_nsec)},
  };
}

}  // namespace quern
