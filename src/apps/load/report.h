// The result of a load run: what happened to each request, and the figures made of it, under the names and definitions
// of vLLM's serving benchmark. Values.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace quern {

struct LoadOutcome {
  enum class State : uint8_t { unsent, done, failed, cut };  // cut: the run was interrupted

  State state = State::unsent;
  std::string error;
  double start_s = 0.0;        // since the run began
  double ttft_s = 0.0;         // send to the first chunk that has choices
  double first_text_s = 0.0;   // send to the first text that is not empty; 0 when there was none
  double latency_s = 0.0;      // send to the last chunk that has choices
  std::vector<double> itls_s;  // between chunks that have choices
  int input_tokens = 0;
  int output_tokens = 0;
  bool counted_by_server = false;  // else output_tokens is the number of chunks with text
  std::string text;

  double tpot_s() const { return output_tokens > 1 ? (latency_s - ttft_s) / (output_tokens - 1) : 0.0; }
};

/// Percentile `percent` of ascending values, interpolated linearly between the two nearest; 0 when there are none.
double percentile(std::span<const double> ascending, double percent);

struct LoadSpread {
  double mean = 0.0;
  double median = 0.0;
  double deviation = 0.0;  // of the population
  std::vector<std::pair<double, double>> percentiles;
};

LoadSpread spread_of(std::vector<double> values, std::span<const double> percents);

/// Limits in milliseconds that a request must keep to count as good; absent: any time will do.
struct Goodput {
  std::optional<double> ttft_ms;
  std::optional<double> tpot_ms;
  std::optional<double> e2el_ms;

  bool asked() const { return ttft_ms || tpot_ms || e2el_ms; }
  bool met_by(const LoadOutcome& outcome) const;
};

/// `ttft:200,tpot:20`.
Result<Goodput> parse_goodput(std::string_view text);
/// Numbers separated by commas, each in [0, 100].
Result<std::vector<double>> parse_percentiles(std::string_view text);

/// What is known about a run beside its outcomes.
struct LoadFacts {
  double seconds = 0.0;
  std::string model;
  std::string endpoint;
  std::string label;
  bool chat = false;
  int prompts = 0;
  double rate = 0.0;  // may be infinite
  double burstiness = 1.0;
  std::optional<int> max_concurrency;
  std::vector<double> percents = {99.0};
  std::vector<std::string> metrics;  // of the table: ttft, tpot, itl, e2el
  Goodput goodput;
  bool interrupted = false;
  int waited = 0;                        // requests that were due and found no free connection
  int connections = 0;                   // that were allowed at most
  double late_p99_ms = 0.0;              // between the moment a request was due and its start
  double cpu_cores = 0.0;                // that the load generator used
  int usable_cores = 1;                  // that it could have used
  std::optional<double> server_ttft_ms;  // mean over the same time, by the server's own /metrics
};

struct LoadReport {
  LoadFacts facts;
  int completed = 0;
  int failed = 0;
  int cut = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  int not_counted = 0;  // completed requests whose output the server did not count
  int good = 0;
  double peak_tokens_per_s = 0.0;  // over the seconds of the run
  int peak_concurrency = 0;        // requests that ran at the same moment
  double tokens_per_chunk = 0.0;
  std::vector<std::pair<std::string, int>> errors;  // each message once, the first one first
  LoadSpread ttft, tpot, itl, e2el, first_text;     // milliseconds

  double per_second(double amount) const { return facts.seconds > 0.0 ? amount / facts.seconds : 0.0; }
};

LoadReport make_report(LoadFacts facts, std::span<const LoadOutcome> outcomes);

/// vLLM's keys. With `outcomes` also the lists of all requests.
Json report_json(const LoadReport& report, std::span<const LoadOutcome> outcomes = {});
/// vLLM's table, then remarks about what makes the figures doubtful.
std::string report_table(const LoadReport& report);

}  // namespace quern
