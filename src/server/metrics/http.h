// HttpMetrics: figures of the HTTP routes and of the process, whichever models it serves. Any thread.
#pragma once

#include <array>
#include <deque>
#include <string_view>

#include "server/metrics/metrics.h"

namespace quern {

/// HTTP figures of one route.
struct RouteMetrics {
  std::string_view path;
  std::string_view method;
  std::array<Counter, 6> by_status{};  // [2]: 2xx ...
  Counter request_bytes{0};
  Counter response_bytes{0};  // of whole answers
  Histogram seconds{{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}};
};

class HttpMetrics {
 public:
  /// Before the first request; the reference stays valid. Routes that only watch the server are not shown.
  RouteMetrics& add_route(std::string_view path, std::string_view method, bool shown = true);
  void write(MetricsPage& page) const;

 private:
  std::deque<RouteMetrics> routes_;
  std::deque<RouteMetrics> hidden_;
};

}  // namespace quern
