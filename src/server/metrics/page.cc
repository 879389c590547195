#include "server/metrics/page.h"

namespace quern {

void MetricsPage::series(std::string_view name, std::string_view labels, const Histogram& histogram) {
  const auto out = std::back_inserter(*out_);
  for (size_t i = 0; i < histogram.bounds().size(); ++i) {
    fmt::format_to(out, "{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, histogram.bounds()[i], histogram.up_to(i));
  }
  const int64_t total = histogram.up_to(histogram.bounds().size());
  fmt::format_to(out, "{}_bucket{{{},le=\"+Inf\"}} {}\n{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, total, name,
                 labels, histogram.sum(), name, labels, total);
}

std::string MetricsPage::text() const {
  std::string all;
  for (const std::string& block : blocks_) all += block;
  return all;
}

}  // namespace quern
