// What a server says about itself at /metrics, under vLLM's names, and what that says about a load run. Values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quern {

/// Sums over all labels, as far as the server has them.
struct ServerMetrics {
  static ServerMetrics parse(std::string_view page);
  /// 0 when there is no such metric. "_total" at its end counts as not there.
  double sum(std::string_view name) const;

  std::map<std::string, double, std::less<>> sums;
  std::map<int, double> accepted_at;  // drafted tokens that were accepted, by their place in the draft
};

struct DraftFigures {
  int64_t drafts = 0;
  int64_t tokens = 0;
  int64_t accepted = 0;
  std::vector<double> accepted_at;  // by place, in parts of the drafts

  double acceptance_percent() const;
  double acceptance_length() const;  // tokens of a step: those accepted and one
};

/// By the difference of two scrapes; absent: the server does not say, or there was nothing.
struct ServerFigures {
  static ServerFigures between(const ServerMetrics& before, const ServerMetrics& after);

  std::optional<double> mean_ttft_ms;
  std::optional<double> prefix_hit_percent;  // of the tokens that were looked up in the prefix cache
  std::optional<DraftFigures> drafts;
};

}  // namespace quern
