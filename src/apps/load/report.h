// The result of a load run: what happened to each request, and the figures made of it, under the names and definitions
// of vLLM's serving benchmark. Values.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/load/server_metrics.h"
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
  bool counted_by_server = false;    // else output_tokens is that of the client's tokenizer or the chunks with text
  std::optional<int> client_tokens;  // of the text, by the client's tokenizer
  std::optional<int> cached_tokens;  // of the prompt, as the server says
  std::vector<int> chunk_bytes;      // of the text in each chunk that has choices
  std::vector<int> chunk_tokens;     // the same in tokens, as far as known: empty, or for every chunk
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
  std::string tokenizer;  // the model's name when there is none here
  std::string endpoint;
  std::string backend = "openai";
  std::string label;
  std::string dataset;
  int64_t seed = 0;
  int prompts = 0;
  int warmups = 0;
  double warmup_s = 0.0;
  std::string prefix_cache = "as-is";  // as-is; cold: emptied before the run; warm: it had seen every prompt
  double rate = 0.0;                   // may be infinite
  double burstiness = 1.0;
  std::optional<int> max_concurrency;
  std::vector<double> percents = {99.0};
  std::vector<std::string> metrics;  // of the table: ttft, tpot, itl, e2el
  Goodput goodput;
  bool interrupted = false;
  int waited = 0;              // requests that were due and found no free connection
  int connections = 0;         // that were allowed at most
  double late_p99_ms = 0.0;    // between the moment a request was due and its start
  double cpu_cores = 0.0;      // that the load generator used
  int usable_cores = 1;        // that it could have used
  ServerFigures server;        // over the same time, by the server's own /metrics
  std::string server_version;  // as the server says, or ""
  Json client;                 // the machine that made the load, and its program
};

/// How many chunks had how much text; sizes above 4 are counted together up to powers of 2.
struct ChunkSizes {
  void add(int size);
  static std::string name(int last);  // "3", "5-8"

  bool in_tokens = false;                   // else bytes
  std::vector<std::pair<int, int>> counts;  // the last size of each kind and the chunks, ascending
};

struct LoadReport {
  LoadFacts facts;
  int completed = 0;
  int failed = 0;
  int cut = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  int not_counted = 0;                   // completed requests whose output nobody counted
  std::optional<int64_t> client_tokens;  // output tokens by the client's tokenizer
  std::optional<int64_t> cached_tokens;  // input tokens that were cached, as the server says
  int good = 0;
  double peak_tokens_per_s = 0.0;  // over the seconds of the run
  int peak_concurrency = 0;        // requests that ran at the same moment
  double tokens_per_chunk = 0.0;
  ChunkSizes chunks;
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
