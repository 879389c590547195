#include "apps/load/report.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <ctime>
#include <fmt/format.h>
#include <map>

namespace quern {
namespace {

constexpr double kMs = 1e3;
constexpr double most_difference = 0.1;  // between the tokens of two counts

std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> parts;
  for (size_t start = 0; start < list.size();) {
    const size_t end = std::min(list.find(',', start), list.size());
    if (end > start) parts.push_back(list.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

Result<double> to_number(std::string_view text) {
  double value = 0.0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return Error{fmt::format("'{}' is not a number", text)};
  }
  return value;
}

bool done(const LoadOutcome& outcome) { return outcome.state == LoadOutcome::State::done; }

/// The most tokens that came within one of the seconds of the run; a chunk stands for an equal part of its answer.
double peak_tokens(std::span<const LoadOutcome> outcomes) {
  std::map<int64_t, double> by_second;
  for (const LoadOutcome& outcome : outcomes) {
    if (!done(outcome)) continue;
    const double weight = static_cast<double>(outcome.output_tokens) / static_cast<double>(outcome.itls_s.size() + 1);
    double at = outcome.start_s + outcome.ttft_s;
    by_second[static_cast<int64_t>(at)] += weight;
    for (const double gap : outcome.itls_s) by_second[static_cast<int64_t>(at += gap)] += weight;
  }
  double most = 0.0;
  for (const auto& [second, tokens] : by_second) most = std::max(most, tokens);
  return most;
}

int peak_running(std::span<const LoadOutcome> outcomes) {
  std::vector<std::pair<double, int>> changes;  // at equal times the end comes before the start
  for (const LoadOutcome& outcome : outcomes) {
    if (!done(outcome)) continue;
    changes.emplace_back(outcome.start_s, 1);
    changes.emplace_back(outcome.start_s + outcome.latency_s, -1);
  }
  std::sort(changes.begin(), changes.end());
  int running = 0;
  int most = 0;
  for (const auto& [at, change] : changes) most = std::max(most, running += change);
  return most;
}

void count_error(LoadReport& report, const std::string& message) {
  for (auto& [known, times] : report.errors) {
    if (known == message) {
      ++times;
      return;
    }
  }
  report.errors.emplace_back(message, 1);
}

void set_spread(Json& json, std::string_view name, const LoadSpread& spread) {
  json.set(fmt::format("mean_{}_ms", name), spread.mean);
  json.set(fmt::format("median_{}_ms", name), spread.median);
  json.set(fmt::format("std_{}_ms", name), spread.deviation);
  for (const auto& [percent, value] : spread.percentiles) json.set(fmt::format("p{:g}_{}_ms", percent, name), value);
}

void set_lists(Json& json, std::span<const LoadOutcome> outcomes) {
  Json::Array input_lens, output_lens, ttfts, itls, start_times, texts, errors;
  for (const LoadOutcome& outcome : outcomes) {
    input_lens.emplace_back(outcome.input_tokens);
    output_lens.emplace_back(outcome.output_tokens);
    ttfts.emplace_back(outcome.ttft_s);
    itls.emplace_back(Json::Array(outcome.itls_s.begin(), outcome.itls_s.end()));
    start_times.emplace_back(outcome.start_s);
    texts.emplace_back(outcome.text);
    errors.emplace_back(outcome.error);
  }
  json.set("input_lens", std::move(input_lens));
  json.set("output_lens", std::move(output_lens));
  json.set("ttfts", std::move(ttfts));
  json.set("itls", std::move(itls));
  json.set("start_times", std::move(start_times));
  json.set("generated_texts", std::move(texts));
  json.set("errors", std::move(errors));
}

void set_drafts(Json& json, const DraftFigures& drafts) {
  json.set("spec_decode_acceptance_rate", drafts.acceptance_percent());
  json.set("spec_decode_acceptance_length", drafts.acceptance_length());
  json.set("spec_decode_num_drafts", drafts.drafts);
  json.set("spec_decode_draft_tokens", drafts.tokens);
  json.set("spec_decode_accepted_tokens", drafts.accepted);
  json.set("spec_decode_per_position_acceptance_rates",
           Json::Array(drafts.accepted_at.begin(), drafts.accepted_at.end()));
}

/// What vLLM's result does not have: how the run was made, and what makes its figures doubtful.
void set_doubts(Json& json, const LoadReport& report) {
  const LoadFacts& facts = report.facts;
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(); };
  Json::Object chunks;
  for (const auto& [last, count] : report.chunks.counts) chunks.emplace_back(ChunkSizes::name(last), count);
  json.set("tokens_per_chunk", report.tokens_per_chunk);
  json.set("chunk_size_unit", report.chunks.in_tokens ? "tokens" : "bytes");
  json.set("chunk_sizes", std::move(chunks));
  json.set("client_output_tokens", or_null(report.client_tokens));
  json.set("dataset_name", facts.dataset);
  json.set("seed", facts.seed);
  json.set("num_warmups", facts.warmups);
  json.set("warmup_duration", facts.warmup_s);
  json.set("prefix_cache", facts.prefix_cache);
  json.set("cached_input_tokens", or_null(report.cached_tokens));
  json.set("server_prefix_hit_percent", or_null(facts.server.prefix_hit_percent));
  json.set("server_mean_ttft_ms", or_null(facts.server.mean_ttft_ms));
  json.set("server_version", facts.server_version.empty() ? Json() : Json(facts.server_version));
  json.set("client", facts.client);
  json.set("client_cpu_cores", facts.cpu_cores);
  json.set("interrupted", facts.interrupted);
  json.set("waited", facts.waited);
  json.set("p99_late_ms", facts.late_p99_ms);
}

void count_tokens(LoadReport& report, const LoadOutcome& outcome) {
  const auto add = [](std::optional<int64_t>& sum, const std::optional<int>& tokens) {
    if (tokens) sum = sum.value_or(0) + *tokens;
  };
  report.input_tokens += outcome.input_tokens;
  report.output_tokens += outcome.output_tokens;
  report.not_counted += !outcome.counted_by_server && !outcome.client_tokens;
  add(report.client_tokens, outcome.client_tokens);
  add(report.cached_tokens, outcome.cached_tokens);
}

ChunkSizes chunk_sizes(std::span<const LoadOutcome> outcomes) {
  ChunkSizes sizes;
  sizes.in_tokens = std::ranges::all_of(outcomes, [](const LoadOutcome& outcome) {
    return !done(outcome) || outcome.chunk_tokens.size() == outcome.chunk_bytes.size();
  });
  for (const LoadOutcome& outcome : outcomes) {
    if (!done(outcome)) continue;
    for (const int size : sizes.in_tokens ? outcome.chunk_tokens : outcome.chunk_bytes) sizes.add(size);
  }
  return sizes;
}

std::string local_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts)};
}

std::string row(std::string_view name, double value) { return fmt::format("{:<40} {:<10.2f}\n", name, value); }
std::string row(std::string_view name, int64_t value) { return fmt::format("{:<40} {:<10}\n", name, value); }

std::string row(std::string_view name, const std::string& value) { return fmt::format("{:<40} {:<10}\n", name, value); }

std::string draft_section(const DraftFigures& drafts) {
  std::string text = fmt::format("{:-^50}\n", "Speculative Decoding");
  text += row("Acceptance rate (%):", drafts.acceptance_percent());
  text += row("Acceptance length:", drafts.acceptance_length());
  text += row("Drafts:", drafts.drafts);
  text += row("Draft tokens:", drafts.tokens);
  text += row("Accepted tokens:", drafts.accepted);
  if (!drafts.accepted_at.empty()) text += "Per-position acceptance (%):\n";
  for (size_t i = 0; i < drafts.accepted_at.size(); ++i) {
    text += row(fmt::format("  Position {}:", i), 100.0 * drafts.accepted_at[i]);
  }
  return text;
}

std::string chunk_rows(const ChunkSizes& chunks) {
  const char* unit = chunks.in_tokens ? "tokens" : "bytes";
  std::string text;
  for (const auto& [last, count] : chunks.counts) {
    text += row(fmt::format("Chunks of {} {}:", ChunkSizes::name(last), unit), int64_t{count});
  }
  return text;
}

std::string section(std::string_view title, std::string_view name, const LoadSpread& spread) {
  std::string text = fmt::format("{:-^50}\n", title);
  text += row(fmt::format("Mean {} (ms):", name), spread.mean);
  text += row(fmt::format("Median {} (ms):", name), spread.median);
  for (const auto& [percent, value] : spread.percentiles) {
    text += row(fmt::format("P{:g} {} (ms):", percent, name), value);
  }
  return text;
}

std::string doubts(const LoadReport& report) {
  const LoadFacts& facts = report.facts;
  std::string text;
  const auto add = [&](const std::string& line) { text += "note: " + line + "\n"; };
  const auto by_server = static_cast<double>(report.output_tokens);
  const auto here = static_cast<double>(report.client_tokens.value_or(report.output_tokens));
  if (std::abs(by_server - here) > most_difference * std::max(by_server, here)) {
    add(fmt::format("the server counts {} output tokens, the tokenizer here {}: is it the model's?",
                    report.output_tokens, *report.client_tokens));
  }
  if (facts.interrupted) add(fmt::format("interrupted; {} requests were cut off and do not count", report.cut));
  if (report.not_counted > 0) {
    add(fmt::format("the server sent no usage for {} requests: their output tokens are chunks with text",
                    report.not_counted));
  }
  if (facts.waited > 0 && (!facts.max_concurrency || std::isfinite(facts.rate))) {
    add(fmt::format("{} requests were due when all {} connections were busy: the load was less than asked for",
                    facts.waited, facts.connections));
  }
  if (facts.late_p99_ms > 10.0) {
    add(fmt::format("requests started up to {:.0f} ms (P99) after they were due", facts.late_p99_ms));
  }
  if (facts.cpu_cores > 0.8 * facts.usable_cores) {
    add(fmt::format("this program used {:.1f} of {} cores: it may have been the limit", facts.cpu_cores,
                    facts.usable_cores));
  }
  for (const auto& [message, times] : report.errors) text += fmt::format("{} failed: {}\n", times, message);
  return text;
}

}  // namespace

double percentile(std::span<const double> ascending, double percent) {
  if (ascending.empty()) return 0.0;
  const double rank = percent / 100.0 * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, ascending.size() - 1);
  return ascending[below] + (ascending[above] - ascending[below]) * (rank - static_cast<double>(below));
}

LoadSpread spread_of(std::vector<double> values, std::span<const double> percents) {
  std::sort(values.begin(), values.end());
  LoadSpread spread;
  const auto count = static_cast<double>(std::max<size_t>(values.size(), 1));
  for (const double value : values) spread.mean += value / count;
  double squares = 0.0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(squares / count);
  spread.median = percentile(values, 50.0);
  for (const double percent : percents) spread.percentiles.emplace_back(percent, percentile(values, percent));
  return spread;
}

bool Goodput::met_by(const LoadOutcome& outcome) const {
  return (!ttft_ms || outcome.ttft_s * kMs <= *ttft_ms) && (!tpot_ms || outcome.tpot_s() * kMs <= *tpot_ms) &&
         (!e2el_ms || outcome.latency_s * kMs <= *e2el_ms);
}

Result<Goodput> parse_goodput(std::string_view text) {
  Goodput goodput;
  for (const std::string_view part : split(text)) {
    const size_t colon = part.find(':');
    const std::string_view name = part.substr(0, colon);
    auto* limit = name == "ttft"   ? &goodput.ttft_ms
                  : name == "tpot" ? &goodput.tpot_ms
                  : name == "e2el" ? &goodput.e2el_ms
                                   : nullptr;
    if (limit == nullptr || colon == std::string_view::npos) {
      return Error{fmt::format("--goodput {}: expected ttft:MS, tpot:MS or e2el:MS", part)};
    }
    const auto value = to_number(part.substr(colon + 1));
    if (!value.ok() || *value < 0.0) return Error{fmt::format("--goodput {}: the limit is in milliseconds", part)};
    *limit = *value;
  }
  return goodput;
}

Result<std::vector<double>> parse_percentiles(std::string_view text) {
  std::vector<double> percents;
  for (const std::string_view part : split(text)) {
    const auto value = to_number(part);
    if (!value.ok() || *value < 0.0 || *value > 100.0) {
      return Error{fmt::format("--metric-percentiles: '{}' is not a number from 0 to 100", part)};
    }
    percents.push_back(*value);
  }
  return percents;
}

void ChunkSizes::add(int size) {
  constexpr int most = 1 << 30;
  const int last = size <= 4 ? size : static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::min(size, most))));
  const auto at = std::ranges::lower_bound(counts, last, {}, &std::pair<int, int>::first);
  if (at != counts.end() && at->first == last) {
    ++at->second;
  } else {
    counts.insert(at, {last, 1});
  }
}

std::string ChunkSizes::name(int last) {
  return last <= 4 ? std::to_string(last) : fmt::format("{}-{}", last / 2 + 1, last);
}

LoadReport make_report(LoadFacts facts, std::span<const LoadOutcome> outcomes) {
  LoadReport report;
  report.facts = std::move(facts);
  std::vector<double> ttft, tpot, itl, e2el, first_text;
  for (const LoadOutcome& outcome : outcomes) {
    report.failed += outcome.state == LoadOutcome::State::failed;
    report.cut += outcome.state == LoadOutcome::State::cut;
    if (outcome.state == LoadOutcome::State::failed) count_error(report, outcome.error);
    if (!done(outcome)) continue;
    ++report.completed;
    report.good += report.facts.goodput.met_by(outcome);
    count_tokens(report, outcome);
    ttft.push_back(outcome.ttft_s * kMs);
    e2el.push_back(outcome.latency_s * kMs);
    if (outcome.output_tokens > 1) tpot.push_back(outcome.tpot_s() * kMs);
    if (outcome.first_text_s > 0.0) first_text.push_back(outcome.first_text_s * kMs);
    for (const double gap : outcome.itls_s) itl.push_back(gap * kMs);
  }
  report.chunks = chunk_sizes(outcomes);
  const auto chunks = static_cast<double>(itl.size()) + report.completed;
  report.tokens_per_chunk = chunks > 0.0 ? static_cast<double>(report.output_tokens) / chunks : 0.0;
  report.peak_tokens_per_s = peak_tokens(outcomes);
  report.peak_concurrency = peak_running(outcomes);
  report.ttft = spread_of(std::move(ttft), report.facts.percents);
  report.tpot = spread_of(std::move(tpot), report.facts.percents);
  report.itl = spread_of(std::move(itl), report.facts.percents);
  report.e2el = spread_of(std::move(e2el), report.facts.percents);
  report.first_text = spread_of(std::move(first_text), report.facts.percents);
  return report;
}

Json report_json(const LoadReport& report, std::span<const LoadOutcome> outcomes) {
  const LoadFacts& facts = report.facts;
  const auto total = static_cast<double>(report.input_tokens + report.output_tokens);
  Json json = Json::Object{
      {"date", local_date()},
      {"endpoint_type", facts.backend},
      {"backend", facts.backend},
      {"endpoint", facts.endpoint},
      {"label", facts.label.empty() ? Json() : Json(facts.label)},
      {"model_id", facts.model},
      {"tokenizer_id", facts.tokenizer.empty() ? facts.model : facts.tokenizer},
      {"num_prompts", facts.prompts},
      {"request_rate", std::isinf(facts.rate) ? Json("inf") : Json(facts.rate)},
      {"burstiness", std::isinf(facts.burstiness) ? Json("inf") : Json(facts.burstiness)},
      {"max_concurrency", facts.max_concurrency ? Json(*facts.max_concurrency) : Json()},
      {"duration", facts.seconds},
      {"completed", report.completed},
      {"failed", report.failed},
      {"total_input_tokens", report.input_tokens},
      {"total_output_tokens", report.output_tokens},
      {"request_throughput", report.per_second(report.completed)},
      {"request_goodput", facts.goodput.asked() ? Json(report.per_second(report.good)) : Json()},
      {"output_throughput", report.per_second(static_cast<double>(report.output_tokens))},
      {"total_token_throughput", report.per_second(total)},
      {"max_output_tokens_per_s", report.peak_tokens_per_s},
      {"max_concurrent_requests", report.peak_concurrency},
  };
  set_spread(json, "ttft", report.ttft);
  set_spread(json, "tpot", report.tpot);
  set_spread(json, "itl", report.itl);
  set_spread(json, "e2el", report.e2el);
  set_spread(json, "first_text", report.first_text);
  if (facts.server.drafts) set_drafts(json, *facts.server.drafts);
  set_doubts(json, report);
  if (!outcomes.empty()) set_lists(json, outcomes);
  return json;
}

std::string report_table(const LoadReport& report) {
  const LoadFacts& facts = report.facts;
  const auto output = static_cast<double>(report.output_tokens);
  std::string text = fmt::format("{:=^50}\n", " Serving Benchmark Result ");
  text += row("Successful requests:", int64_t{report.completed});
  text += row("Failed requests:", int64_t{report.failed});
  if (facts.max_concurrency) text += row("Maximum request concurrency:", int64_t{*facts.max_concurrency});
  if (std::isfinite(facts.rate)) text += row("Request rate configured (RPS):", facts.rate);
  text += row("Benchmark duration (s):", facts.seconds);
  text += row("Total input tokens:", report.input_tokens);
  text += row("Total generated tokens:", report.output_tokens);
  text += row("Request throughput (req/s):", report.per_second(report.completed));
  if (facts.goodput.asked()) text += row("Request goodput (req/s):", report.per_second(report.good));
  text += row("Output token throughput (tok/s):", report.per_second(output));
  text += row("Peak output token throughput (tok/s):", report.peak_tokens_per_s);
  text += row("Peak concurrent requests:", static_cast<double>(report.peak_concurrency));
  const double total = static_cast<double>(report.input_tokens) + output;
  text += row("Total token throughput (tok/s):", report.per_second(total));
  for (const std::string& metric : facts.metrics) {
    if (metric == "ttft") text += section("Time to First Token", "TTFT", report.ttft);
    if (metric == "tpot") text += section("Time per Output Token (excl. 1st token)", "TPOT", report.tpot);
    if (metric == "itl") text += section("Inter-token Latency", "ITL", report.itl);
    if (metric == "e2el") text += section("End-to-end Latency", "E2EL", report.e2el);
  }
  if (facts.server.drafts) text += draft_section(*facts.server.drafts);
  text += std::string(50, '=') + "\n";
  text += row("Mean time to first text (ms):", report.first_text.mean);
  text += row("Mean tokens per chunk:", report.tokens_per_chunk);
  text += chunk_rows(report.chunks);
  if (facts.server.mean_ttft_ms) text += row("Mean TTFT by the server's metrics (ms):", *facts.server.mean_ttft_ms);
  text += row("Prefix cache before the run:", facts.prefix_cache);
  if (report.cached_tokens) text += row("Cached input tokens:", *report.cached_tokens);
  return text + doubts(report);
}

}  // namespace quern
