#include "apps/load/sweep.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <optional>

#include "base/flags.h"

namespace quern {
namespace {

constexpr int most_concurrency = 1024;
constexpr double percent = 99.0;
constexpr double nearly_all = 0.9;

double p99(const LoadSpread& spread) {
  for (const auto& [at, value] : spread.percentiles) {
    if (at == percent) return value;
  }
  return 0.0;
}

bool keeps(const SweepPoint& point, const Goodput& limits) {
  const LoadReport& report = point.report;
  const auto within = [](const std::optional<double>& limit, const LoadSpread& spread) {
    return !limit || p99(spread) <= *limit;
  };
  return report.failed == 0 && within(limits.ttft_ms, report.ttft) && within(limits.tpot_ms, report.tpot) &&
         within(limits.e2el_ms, report.e2el);
}

double all_tokens_per_second(const LoadReport& report) {
  return report.per_second(static_cast<double>(report.input_tokens + report.output_tokens));
}

std::string limits_text(const Goodput& limits) {
  std::string text;
  const auto add = [&](const char* name, const std::optional<double>& limit) {
    if (limit) text += fmt::format("{}{} {:g} ms", text.empty() ? "" : ", ", name, *limit);
  };
  add("TTFT", limits.ttft_ms);
  add("TPOT", limits.tpot_ms);
  add("E2EL", limits.e2el_ms);
  return text;
}

}  // namespace

Result<Sweep> Sweep::parse(const SweepOptions& options) {
  Sweep sweep;
  const std::string& list = options.concurrencies;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const auto value = parse_integer(std::string_view(list).substr(begin, end - begin));
    if (!value.ok() || *value < 1 || *value > most_concurrency) {
      return Error{fmt::format("--sweep {}: say requests that run at once, each 1 to {}, such as 1,4,16,64", list,
                               most_concurrency)};
    }
    sweep.concurrencies.push_back(static_cast<int>(*value));
    begin = end + 1;
  }
  std::ranges::sort(sweep.concurrencies);
  ASSIGN_OR_RETURN(sweep.limits, parse_goodput(options.limits));
  if (!(options.price_per_hour >= 0) || !std::isfinite(options.price_per_hour)) {
    return Error{"--price-per-hour takes what the machine costs in an hour, such as 2.5"};
  }
  sweep.price_per_hour = options.price_per_hour;
  return sweep;
}

const SweepPoint* knee_of(const Sweep& sweep, std::span<const SweepPoint> points) {
  const SweepPoint* best = nullptr;
  for (const SweepPoint& point : points) {
    if (!keeps(point, sweep.limits)) continue;
    if (best == nullptr || point.tokens_per_second() > best->tokens_per_second()) best = &point;
  }
  if (best == nullptr || sweep.limits.asked()) return best;
  for (const SweepPoint& point : points) {
    if (keeps(point, sweep.limits) && point.tokens_per_second() >= nearly_all * best->tokens_per_second())
      return &point;
  }
  return best;
}

double million_price(double price_per_hour, double tokens_per_second) {
  return tokens_per_second > 0 ? price_per_hour / 3600 / tokens_per_second * 1e6 : 0.0;
}

Json point_json(const Sweep& sweep, const SweepPoint& point) {
  const LoadReport& report = point.report;
  Json json = Json::Object{{"what", "sweep"}, {"concurrency", point.concurrency}, {"completed", report.completed}};
  json.set("failed", report.failed);
  json.set("request_throughput", report.per_second(report.completed));
  json.set("output_throughput", point.tokens_per_second());
  json.set("total_token_throughput", all_tokens_per_second(report));
  json.set("median_ttft_ms", report.ttft.median);
  json.set("p99_ttft_ms", p99(report.ttft));
  json.set("median_tpot_ms", report.tpot.median);
  json.set("p99_tpot_ms", p99(report.tpot));
  if (sweep.price_per_hour > 0) {
    json.set("price_per_million_output_tokens", million_price(sweep.price_per_hour, point.tokens_per_second()));
    json.set("price_per_million_tokens", million_price(sweep.price_per_hour, all_tokens_per_second(report)));
  }
  return json;
}

std::string sweep_head(const Sweep& sweep) {
  std::string text = fmt::format("{:>11}{:>12}{:>12}{:>12}{:>22}{:>22}", "concurrency", "requests/s", "output/s",
                                 "tokens/s", "TTFT p50 / p99 ms", "TPOT p50 / p99 ms");
  if (sweep.price_per_hour > 0) text += fmt::format("{:>16}{:>16}", "price/M output", "price/M tokens");
  return text + "\n";
}

std::string point_line(const Sweep& sweep, const SweepPoint& point) {
  const LoadReport& report = point.report;
  std::string text =
      fmt::format("{:>11}{:>12.2f}{:>12.1f}{:>12.1f}{:>12.1f} /{:>8.1f}{:>12.2f} /{:>8.2f}", point.concurrency,
                  report.per_second(report.completed), point.tokens_per_second(), all_tokens_per_second(report),
                  report.ttft.median, p99(report.ttft), report.tpot.median, p99(report.tpot));
  if (sweep.price_per_hour > 0) {
    text += fmt::format("{:>16.3f}{:>16.3f}", million_price(sweep.price_per_hour, point.tokens_per_second()),
                        million_price(sweep.price_per_hour, all_tokens_per_second(report)));
  }
  return text + (report.failed > 0 ? fmt::format("   {} failed\n", report.failed) : "\n");
}

std::string knee_line(const Sweep& sweep, std::span<const SweepPoint> points) {
  const SweepPoint* const knee = knee_of(sweep, points);
  const std::string limits = sweep.limits.asked() ? fmt::format(" within {} at p99", limits_text(sweep.limits)) : "";
  if (knee == nullptr) return fmt::format("no concurrency stays{}\n", limits.empty() ? " without failures" : limits);
  const char* what = limits.empty() ? "nine tenths of the most tokens" : "the most tokens";
  std::string text = fmt::format("{}{}: concurrency {}, {:.1f} output tokens/s", what, limits, knee->concurrency,
                                 knee->tokens_per_second());
  if (sweep.price_per_hour > 0) {
    text +=
        fmt::format(", {:.3f} for a million of them", million_price(sweep.price_per_hour, knee->tokens_per_second()));
  }
  return text + "\n";
}

}  // namespace quern
