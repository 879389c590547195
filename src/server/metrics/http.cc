#include "server/metrics/http.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "server/metrics/page.h"

namespace quern {
namespace {

void write_process(MetricsPage& page) {
  double ticks = 0;
  double start_ticks = 0;
  int64_t resident_pages = 0;
  std::ifstream stat("/proc/self/stat");
  std::string line;
  std::getline(stat, line);
  const size_t after_name = line.rfind(')');
  if (after_name != std::string::npos) {
    std::vector<std::string> parts;
    std::string part;
    for (const char c : line.substr(after_name + 2)) {
      if (c != ' ') {
        part += c;
        continue;
      }
      parts.push_back(std::exchange(part, {}));
    }
    if (parts.size() > 21) {
      ticks = std::stod(parts[11]) + std::stod(parts[12]);
      start_ticks = std::stod(parts[19]);
      resident_pages = std::stoll(parts[21]);
    }
  }
  double boot_s = 0;
  std::ifstream system("/proc/stat");
  for (std::string word; system >> word;) {
    if (word == "btime") {
      system >> boot_s;
      break;
    }
  }
  std::error_code ignored;
  const auto files = std::distance(std::filesystem::directory_iterator("/proc/self/fd", ignored), {});
  const double per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto write = [&](std::string_view name, std::string_view type, auto value, std::string_view help) {
    page.family(name, type, help);
    page.bare(name, "", value);
  };
  write("process_cpu_seconds_total", "counter", ticks / per_second, "User and system time of the process.");
  write("process_resident_memory_bytes", "gauge", resident_pages * sysconf(_SC_PAGESIZE), "Resident memory.");
  write("process_open_fds", "gauge", files, "Open file descriptors.");
  write("process_start_time_seconds", "gauge", boot_s + start_ticks / per_second, "Start of the process in Unix time.");
}

}  // namespace

RouteMetrics& HttpMetrics::add_route(std::string_view path, std::string_view method, bool shown) {
  RouteMetrics& route = (shown ? routes_ : hidden_).emplace_back();
  route.path = path;
  route.method = method;
  return route;
}

void HttpMetrics::write(MetricsPage& page) const {
  page.family("http_requests_total", "counter", "HTTP requests by route.");
  for (const RouteMetrics& route : routes_) {
    for (size_t status = 2; status < route.by_status.size(); ++status) {
      page.bare("http_requests_total",
                fmt::format("{{handler=\"{}\",method=\"{}\",status=\"{}xx\"}}", route.path, route.method, status),
                route.by_status[status].load());
    }
  }
  const auto sizes = [&](std::string_view name, std::string_view help, Counter RouteMetrics::* bytes) {
    page.family(name, "summary", help);
    for (const RouteMetrics& route : routes_) {
      const std::string labels = fmt::format("{{handler=\"{}\",method=\"{}\"}}", route.path, route.method);
      page.bare(fmt::format("{}_sum", name), labels, (route.*bytes).load());
      page.bare(fmt::format("{}_count", name), labels, route.seconds.count());
    }
  };
  sizes("http_request_size_bytes", "Bodies of HTTP requests by route.", &RouteMetrics::request_bytes);
  sizes("http_response_size_bytes", "Bodies of whole HTTP answers by route.", &RouteMetrics::response_bytes);
  page.family("http_request_duration_seconds", "histogram", "Time of HTTP requests by route.");
  for (const RouteMetrics& route : routes_) {
    page.series("http_request_duration_seconds", fmt::format("handler=\"{}\",method=\"{}\"", route.path, route.method),
                route.seconds);
  }
  write_process(page);
}

}  // namespace quern
