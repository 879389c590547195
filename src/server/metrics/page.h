// MetricsPage: Prometheus text being written. Samples of one family stand together under one HELP and TYPE, however
// many models add to it. One scrape's thread.
#pragma once

#include <deque>
#include <fmt/format.h>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include "server/metrics/metrics.h"

namespace quern {

class MetricsPage {
 public:
  /// What every sample() has from now on: model_name and engine.
  void set_labels(std::string labels) { labels_ = std::move(labels); }
  /// Where the samples go that follow.
  void family(std::string_view name, std::string_view type, std::string_view help) {
    const auto known = by_name_.find(name);
    if (known != by_name_.end()) {
      out_ = known->second;
      return;
    }
    out_ = &blocks_.emplace_back(fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type));
    by_name_.emplace(name, out_);
  }
  template <typename Number>
  void sample(std::string_view name, Number value, std::string_view more = "") {
    fmt::format_to(std::back_inserter(*out_), "{}{{{}{}}} {}\n", name, labels_, more, value);
  }
  /// Without those labels.
  template <typename Number>
  void bare(std::string_view name, std::string_view labels, Number value) {
    fmt::format_to(std::back_inserter(*out_), "{}{} {}\n", name, labels, value);
  }
  template <typename Number>
  void counter(std::string_view name, Number value, std::string_view help) {
    family(name, "counter", help);
    sample(name, value);
  }
  template <typename Number>
  void gauge(std::string_view name, Number value, std::string_view help) {
    family(name, "gauge", help);
    sample(name, value);
  }
  void histogram(std::string_view name, const Histogram& histogram, std::string_view help) {
    family(name, "histogram", help);
    series(name, labels_, histogram);
  }
  void series(std::string_view name, std::string_view labels, const Histogram& histogram);

  std::string text() const;

 private:
  std::string labels_;
  std::deque<std::string> blocks_;
  std::map<std::string, std::string*, std::less<>> by_name_;
  std::string* out_ = nullptr;
};

}  // namespace quern
