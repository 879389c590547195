// ServerOptions: what the operator decides about the server, and what the loaded model says of itself. Plain data.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/request.h"
#include "net/http_server.h"
#include "server/access/api_key.h"
#include "server/metrics/metrics.h"
#include "server/model_library.h"
#include "text/reply/reply_format.h"

namespace quern {

/// What a request gets that says nothing; from generation_config.json.
struct GenerationDefaults {
  SamplingParams sampling;
  std::optional<int32_t> max_tokens;
};

/// What a model that answers with vectors or scores says of itself.
struct PoolingOptions {
  int32_t dim = 0;                             // values of a vector
  bool normalize = true;                       // vectors get length 1
  bool any_dimensions = false;                 // shorter vectors may be asked for ...
  std::vector<int32_t> dimensions;             // ... or these lengths
  std::map<std::string, std::string> prompts;  // by name: what is put before a text
  std::string default_prompt;                  // the name of the one for texts that name none
  bool sigmoid = true;                         // scores are brought between 0 and 1
  bool asks_yes_or_no = false;                 // a language model judges pairs: its two scores are of "yes" and "no"
};

/// Under which names reasoning goes out.
enum class ReasoningFields : uint8_t { both, reasoning, reasoning_content };

struct ServerOptions {
  HttpServerOptions http;  // its two callbacks are set by the server

  std::vector<std::string> model_names;  // what clients may send as `model`; the first one labels metrics
  std::string model_root;                // path or id of the model, as /v1/models shows it
  std::string version = "0";
  std::string build;      // the commit; "": not known
  std::string root_path;  // "/x": what a proxy puts before every path; requests may still have it

  std::vector<ApiKey> api_keys;  // none: everybody may ask
  bool metrics_auth = false;
  bool sleep_mode = false;                        // the routes that send the server to sleep
  bool strict_params = false;                     // unknown fields are errors
  bool always_usage = false;                      // every stream ends with a chunk of usage
  bool web_page = true;                           // a page for people at /
  std::vector<std::string> allowed_origins{"*"};  // of web pages that may call; "*": any, here and in the next two
  std::vector<std::string> allowed_methods{"*"};
  std::vector<std::string> allowed_headers{"*"};
  bool allow_credentials = false;          // their cookies and keys that a browser keeps
  std::vector<std::string> allowed_hosts;  // further names for a server on the loopback interface; "*": any

  bool ollama_api = true;                 // /api/...; off: such paths do not exist
  bool allow_model_management = false;    // /api/pull, /api/copy and /api/delete do something
  std::shared_ptr<ModelLibrary> library;  // the models of this machine; may be absent
  ModelDetails details;                   // what the files of the model say
  int64_t memory_bytes = 0;               // that the loaded model takes, and how many of them on a GPU
  int64_t gpu_bytes = 0;
  int32_t most_sequences = 1;  // that are computed at a time

  OutputKind output = OutputKind::tokens;  // what the model is served for
  PoolingOptions pooling;                  // unless that is text

  int32_t max_model_len = 0;        // tokens of prompt and answer together
  int32_t vocab_size = 0;           // ids below are legal; 0: the tokenizer's size
  std::vector<int32_t> end_tokens;  // end an answer unless ignore_eos
  GenerationDefaults defaults;
  uint64_t seed = 0;        // of requests that name none, in the order they come; 0: random
  Json template_variables;  // object: what every chat template rendering sees, unless the request says otherwise

  ReplyFormat reply_format;  // how the model spells calls and reasoning; without a dialect tools are refused
  ReasoningFields reasoning_fields = ReasoningFields::both;

  int32_t max_logprobs = 20;    // of one token; -1: of the whole vocabulary
  bool tell_logits = false;     // logits are told in place of logprobs
  bool tell_processed = false;  // and those that tokens are drawn from in place of the model's
  int32_t max_choices = 256;    // prompts x n of one request
  int32_t max_stop_strings = 4;
  int32_t text_threads = 2;
  int32_t max_queued_texts = 1024;  // requests that wait for a text thread
  int32_t block_tokens = 16;        // shown by vllm:cache_config_info

  std::function<std::vector<Gauge>()> gauges;  // what else /metrics shows; called from the server's threads

  double watchdog_timeout_s = 60;                  // /health fails when work exists and no step ended for so long
  double request_timeout_s = 0;                    // 0: none
  std::chrono::milliseconds ping_interval{5'000};  // of SSE comments while there is nothing to say
};

}  // namespace quern
