// LoadTestOptions: what `quern bench --url` is told, under the names of vLLM's serving benchmark. Values.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/load/requests.h"
#include "apps/load/sweep.h"
#include "base/flags.h"
#include "base/result.h"

namespace quern {

struct LoadTestOptions {
  static constexpr double not_given = std::numeric_limits<double>::quiet_NaN();

  std::string url;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string endpoint;
  std::string backend = "openai";
  std::string model;
  std::string api_key;
  std::vector<std::string> headers;
  std::string extra_body;
  PromptOptions prompts;
  ArrivalOptions arrivals;
  int num_prompts = 1000;
  int num_warmups = 0;
  int max_concurrency = 0;
  int64_t seed = 0;
  bool ignore_eos = false;
  double temperature = 0.0;
  double top_p = not_given, top_k = not_given, min_p = not_given;
  int logprobs = -1;              // -1: not asked for
  std::string tokenizer;          // of the client; "": none
  std::string request_id_prefix;  // "": no x-request-id
  std::string prefix_cache = "as-is";
  std::vector<std::string> goodput;
  std::string metrics = "ttft,tpot,itl,e2el";
  std::string percentiles = "99";
  int ready_timeout_s = 600;
  int request_timeout_s = 6 * 3600;
  bool save = false;
  bool detailed = false;
  bool json = false;
  bool quiet = false;
  std::string directory = ".";
  std::string filename;
  SweepOptions sweep;  // its limits are those of goodput
  std::string label;
  std::vector<std::string> metadata;
};

void add_load_flags(Flags& flags, LoadTestOptions& options);

/// `--goodput A B` as `--goodput A --goodput B`, and other lists too, as vLLM's users write them.
std::vector<std::string> with_lists_apart(std::span<char* const> arguments);

/// What no single flag can say.
Status check(const LoadTestOptions& options);

Result<LoadTarget> make_target(const LoadTestOptions& options);

/// The words between commas.
std::vector<std::string> words_of(std::string_view list);

}  // namespace quern
