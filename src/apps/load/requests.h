// What a load generator sends: prompts, the requests made of them, and the moments at which they start. Values.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "apps/load/tokens.h"
#include "base/json.h"
#include "base/result.h"
#include "net/http_client.h"

namespace quern {

struct LoadPrompt {
  std::vector<int32_t> ids;  // or else `text`
  std::string text;
  int input_tokens = 0;  // exact for ids and with a tokenizer, else a guess; the server's usage replaces it
  int output_tokens = 0;
  std::string request_id;  // for x-request-id; may be empty
};

struct PromptOptions {
  std::string dataset = "random";  // random, prefix_repetition, sharegpt or custom
  std::string path;                // of sharegpt (one JSON array) and custom (JSON lines)
  int input_tokens = 1024;
  int output_tokens = -1;     // -1: 128 for made prompts, the dataset's own for others
  double range_ratio = 0.0;   // lengths are uniform in [(1 - r) * length, (1 + r) * length]
  int prefix_tokens = 0;      // the same first tokens for all random prompts, on top of their length
  int vocabulary = 30000;     // random ids are below this, and not among the first ones, where special tokens are
  bool words = false;         // random words rather than ids
  int repeated_tokens = 256;  // prefix_repetition: of each of the prefixes, whose turn comes again and again,
  int repeated_suffix = 256;  // and of what follows, different each time
  int prefixes = 10;
  const LoadTokens* tokens = nullptr;  // counts, and makes random prompts of its own tokens
  bool chat = false;                   // a template puts tokens around prompts, rather than the tokenizer

  bool made() const { return dataset == "random" || dataset == "prefix_repetition"; }
};

/// `count` prompts; a dataset that has fewer starts again. The same seed gives the same prompts.
Result<std::vector<LoadPrompt>> make_prompts(const PromptOptions& options, int count, uint64_t seed);

struct ArrivalOptions {
  double rate = std::numeric_limits<double>::infinity();  // requests per second; infinite: all at once
  double burstiness = 1.0;  // shape of the gamma distribution of the gaps: 1 is Poisson, less is burstier
  std::string ramp;         // "", linear or exponential: the rate goes from ramp_start to ramp_end over the requests
  double ramp_start = 0.0;
  double ramp_end = 0.0;
};

/// Seconds from the start of the run to each request, ascending. Without a ramp they are scaled so that the last one is
/// at count / rate: the mean rate is exact.
std::vector<double> arrival_times(const ArrivalOptions& options, int count, uint64_t seed);

/// Where requests go, and what all of them have in common.
struct LoadTarget {
  HttpUrl server() const { return {host, port, "", tls}; }

  std::string host;
  int port = 80;
  bool tls = false;
  std::string prefix;  // of all paths of this server; usually empty
  std::string endpoint = "/v1/completions";
  HttpHeaders headers;
  Json fields;  // of every body: model, stream, sampling
  Json extra;   // of every body, over what is in it
  std::chrono::milliseconds timeout{6 * 3600 * 1000};

  bool chat() const { return endpoint.find("chat") != std::string::npos; }
  HttpRequest get(const std::string& path) const;
  HttpRequest post(const LoadPrompt& prompt) const;
};

}  // namespace quern
