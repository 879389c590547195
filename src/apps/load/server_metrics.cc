#include "apps/load/server_metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace quern {
namespace {

constexpr std::string_view total = "_total";
constexpr std::string_view accepted_at_name = "vllm:spec_decode_num_accepted_tokens_per_pos";

std::string_view without_total(std::string_view name) {
  if (name.ends_with(total)) name.remove_suffix(total.size());
  return name;
}

int position_in(std::string_view labels) {
  constexpr std::string_view label = "position=\"";
  const size_t at = labels.find(label);
  int position = -1;
  if (at != std::string_view::npos) {
    std::from_chars(labels.data() + at + label.size(), labels.data() + labels.size(), position);
  }
  return position;
}

}  // namespace

ServerMetrics ServerMetrics::parse(std::string_view page) {
  ServerMetrics metrics;
  for (size_t start = 0; start < page.size();) {
    const size_t end = std::min(page.find('\n', start), page.size());
    const std::string_view line = page.substr(start, end - start);
    start = end + 1;
    const size_t brace = line.find('{');
    const size_t close = brace == std::string_view::npos ? brace : line.rfind('}');
    const size_t space = line.find(' ', close == std::string_view::npos ? 0 : close);
    if (line.starts_with('#') || space == std::string_view::npos) continue;
    double value = 0.0;
    const auto read = std::from_chars(line.data() + space + 1, line.data() + line.size(), value);
    if (read.ec != std::errc() || !std::isfinite(value)) continue;
    const std::string_view name = without_total(line.substr(0, std::min(brace, space)));
    metrics.sums[std::string(name)] += value;
    const int position = name == accepted_at_name ? position_in(line.substr(name.size(), space - name.size())) : -1;
    if (position >= 0) metrics.accepted_at[position] += value;
  }
  return metrics;
}

double ServerMetrics::sum(std::string_view name) const {
  const auto found = sums.find(without_total(name));
  return found == sums.end() ? 0.0 : found->second;
}

double DraftFigures::acceptance_percent() const {
  return tokens > 0 ? 100.0 * static_cast<double>(accepted) / static_cast<double>(tokens) : 0.0;
}

double DraftFigures::acceptance_length() const {
  return drafts > 0 ? 1.0 + static_cast<double>(accepted) / static_cast<double>(drafts) : 0.0;
}

ServerFigures ServerFigures::between(const ServerMetrics& before, const ServerMetrics& after) {
  const auto grown = [&](std::string_view name) { return after.sum(name) - before.sum(name); };
  ServerFigures figures;
  const double requests = grown("vllm:time_to_first_token_seconds_count");
  if (requests > 0) figures.mean_ttft_ms = 1e3 * grown("vllm:time_to_first_token_seconds_sum") / requests;
  const double queries = grown("vllm:prefix_cache_queries");
  if (queries > 0) figures.prefix_hit_percent = 100.0 * grown("vllm:prefix_cache_hits") / queries;
  const double drafts = grown("vllm:spec_decode_num_drafts");
  if (drafts <= 0) return figures;
  DraftFigures& made = figures.drafts.emplace();
  made.drafts = std::llround(drafts);
  made.tokens = std::llround(grown("vllm:spec_decode_num_draft_tokens"));
  made.accepted = std::llround(grown("vllm:spec_decode_num_accepted_tokens"));
  for (const auto& [position, accepted] : after.accepted_at) {
    const auto earlier = before.accepted_at.find(position);
    made.accepted_at.push_back((accepted - (earlier == before.accepted_at.end() ? 0.0 : earlier->second)) / drafts);
  }
  return figures;
}

}  // namespace quern
