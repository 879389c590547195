#include "server/openai/generation.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <limits>

namespace quern {
namespace {

constexpr size_t kMaxStopBytes = 4096;
constexpr size_t kMaxStopTokens = 1024;
constexpr size_t kMaxBiases = 1024;
constexpr size_t kMaxBadWords = 256;
constexpr size_t kMaxBadWordBytes = 256;
constexpr size_t kMaxIdBytes = 128;
constexpr size_t kMaxLogprobIds = 1024;
constexpr int32_t kFewLogprobs = 20;  // of a token: as many are never too many
constexpr int64_t kMaxLogprobs = int64_t{1} << 24;
constexpr int32_t kMaxCount = std::numeric_limits<int32_t>::max();

void read_sampling(Fields& fields, const TextModel& model, SamplingParams& sampling) {
  sampling = model.options.defaults.sampling;
  sampling.tell_logits = model.options.tell_logits;
  sampling.tell_processed = model.options.tell_processed;
  const auto set = [&](float& value, std::string_view name, double low, double high) {
    if (const auto read = fields.number(name, low, high)) value = static_cast<float>(*read);
  };
  set(sampling.temperature, "temperature", 0, 2);
  set(sampling.top_p, "top_p", 1e-6, 1);
  set(sampling.min_p, "min_p", 0, 1);
  set(sampling.typical_p, "typical_p", 1e-6, 1);
  set(sampling.presence_penalty, "presence_penalty", -2, 2);
  set(sampling.frequency_penalty, "frequency_penalty", -2, 2);
  set(sampling.repetition_penalty, "repetition_penalty", 1e-3, 1e3);
  if (const auto last = fields.integer("repeat_last_n", -1, kMaxCount))
    sampling.repeat_last_n = static_cast<int32_t>(*last);
  if (const auto top_k = fields.integer("top_k", -1, kMaxCount)) {
    sampling.top_k = *top_k < 1 ? 0 : std::min(static_cast<int32_t>(*top_k), model.vocab_size());
  }
}

void read_logit_bias(Fields& fields, int32_t vocab_size, SamplingParams& sampling) {
  const Json* biases = fields.object("logit_bias");
  if (biases == nullptr) return;
  if (biases->members().size() > kMaxBiases) {
    return fields.invalid("logit_bias", "array_above_max_length",
                          fmt::format("Invalid 'logit_bias': at most {} tokens can have one.", kMaxBiases));
  }
  for (const auto& [key, value] : biases->members()) {
    int32_t id = -1;
    const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failure != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab_size) {
      return fields.invalid("logit_bias", "invalid_value",
                            fmt::format("Invalid 'logit_bias': '{}' is no token id of the vocabulary of {} tokens.",
                                        key.substr(0, 32), vocab_size));
    }
    if (!value.is_number()) return fields.wrong_kind("logit_bias", "a number for each token", value);
    if (std::abs(value.as_number()) > 100) {
      return fields.invalid("logit_bias", "invalid_value", "Invalid 'logit_bias': values must be from -100 to 100.");
    }
    sampling.logit_bias.emplace_back(id, static_cast<float>(value.as_number()));
  }
}

/// Each word as it is spelled at the beginning of a text and after a space.
void read_bad_words(Fields& fields, const TextModel& model, SamplingParams& sampling) {
  const Json::Array* words = fields.array("bad_words", kMaxBadWords);
  if (words == nullptr) return;
  for (const Json& word : *words) {
    if (!word.is_string()) return fields.wrong_kind("bad_words", "strings", word);
    const std::string& text = word.as_string();
    const size_t begin = std::min(text.find_first_not_of(' '), text.size());
    if (begin == text.size() || text.size() > kMaxBadWordBytes) {
      return fields.invalid("bad_words", "invalid_value",
                            fmt::format("Invalid 'bad_words': a word has 1 to {} bytes.", kMaxBadWordBytes));
    }
    for (const std::string& spelling : {text.substr(begin), " " + text.substr(begin)}) {
      auto tokens = model.tokenizer->encode(spelling, {.add_special = false});
      if (!tokens.ok()) return fields.invalid("bad_words", "invalid_value", tokens.error().message);
      if (!tokens->empty()) sampling.bad_words.push_back(std::move(*tokens));
    }
  }
}

void read_allowed_tokens(Fields& fields, int32_t vocab_size, SamplingParams& sampling) {
  const auto ids = fields.token_ids("allowed_token_ids", vocab_size, static_cast<size_t>(vocab_size));
  if (!ids) return;
  if (ids->empty()) {
    return fields.invalid("allowed_token_ids", "invalid_value", "Invalid 'allowed_token_ids': it must not be empty.");
  }
  std::vector<uint32_t> words((static_cast<size_t>(vocab_size) + 31) / 32, 0);
  for (const int32_t id : *ids) words[static_cast<size_t>(id) / 32] |= 1U << (id % 32);
  sampling.allowed = std::make_shared<const std::vector<uint32_t>>(std::move(words));
}

void read_prompt_logprobs(Fields& fields, const TextModel& model, AnswerParams& params) {
  params.prompt_logprobs = read_logprob_count(fields, "prompt_logprobs", model);
  if (params.prompt_logprobs && params.stream) {
    fields.invalid("prompt_logprobs", "invalid_value",
                   "The 'prompt_logprobs' parameter is not allowed when 'stream' is true.");
  }
}

void read_stops(Fields& fields, const TextModel& model, AnswerParams& params) {
  if (const Json* stop = fields.one_of("stop", {Fields::Kind::string, Fields::Kind::array})) {
    if (stop->is_string()) {
      params.stops.push_back(stop->as_string());
    } else if (const Json::Array* list = fields.array("stop", static_cast<size_t>(model.options.max_stop_strings))) {
      for (const Json& item : *list) {
        if (!item.is_string()) return fields.wrong_kind("stop", "strings", item);
        params.stops.push_back(item.as_string());
      }
    }
  }
  for (const std::string& text : params.stops) {
    if (text.empty() || text.size() > kMaxStopBytes) {
      return fields.invalid("stop", "invalid_value",
                            fmt::format("Invalid 'stop': a stop string has 1 to {} bytes.", kMaxStopBytes));
    }
  }
  if (auto ids = fields.token_ids("stop_token_ids", model.vocab_size(), kMaxStopTokens))
    params.stop_tokens = std::move(*ids);
  params.include_stop = fields.boolean("include_stop_str_in_output").value_or(false);
  params.ignore_eos = fields.boolean("ignore_eos").value_or(false);
}

void read_streaming(Fields& fields, bool always_usage, AnswerParams& params) {
  params.stream = fields.boolean("stream").value_or(false);
  const bool found = fields.members("stream_options", [&](Fields& members) {
    params.include_usage = members.boolean("include_usage").value_or(false);
    params.continuous_usage = members.boolean("continuous_usage_stats").value_or(false);
    members.ignore(Fields::Kind::boolean, {"include_obfuscation"});
  });
  if (found && !params.stream) {
    fields.invalid("stream_options", "invalid_value",
                   "The 'stream_options' parameter is only allowed when 'stream' is true.");
  }
  if (always_usage && params.stream) params.include_usage = true;
}

void read_limits(Fields& fields, int32_t min_max_tokens, AnswerParams& params) {
  const auto max_tokens = fields.integer("max_tokens", min_max_tokens, kMaxCount);
  const auto max_completion = fields.integer("max_completion_tokens", min_max_tokens, kMaxCount);
  if (max_completion) {
    params.max_tokens = static_cast<int32_t>(*max_completion);
    params.limit_name = "max_completion_tokens";
  } else if (max_tokens) {
    params.max_tokens = static_cast<int32_t>(*max_tokens);
  }
  params.min_tokens = static_cast<int32_t>(fields.integer("min_tokens", 0, kMaxCount).value_or(0));
  if (params.max_tokens && params.min_tokens > *params.max_tokens) {
    fields.invalid("min_tokens", "integer_above_max_value",
                   "Invalid 'min_tokens': it is larger than the maximum number of tokens.");
  }
}

/// `left`: tokens of the context that the prompt leaves for the answer, where they are counted.
ApiError too_long(const TextModel& model, const AnswerParams& params, std::string_view prompt_tokens, int64_t left,
                  std::string_view param) {
  std::string message =
      fmt::format("This model's maximum context length is {} tokens. However, ", model.options.max_model_len);
  if (params.max_tokens) {
    message += fmt::format("you requested {} output tokens and your prompt contains {} input tokens. ",
                           *params.max_tokens, prompt_tokens);
    message += left > 0
                   ? fmt::format("Please shorten the prompt, or ask for at most {} with {}.", left, params.limit_name)
                   : "Please shorten the prompt.";
  } else {
    message += fmt::format("your prompt contains {} input tokens. Please shorten the prompt.", prompt_tokens);
  }
  return {400, std::move(message), "context_length_exceeded", std::string(param)};
}

/// Whole vocabularies for long texts would be more than a machine has memory for.
std::optional<ApiError> check_logprobs(const AnswerParams& params, const Prompt& prompt) {
  const int64_t each = params.sampling.logprobs;
  const int64_t of_prompt = std::max<int64_t>(params.prompt_logprobs.value_or(-1), params.echo ? each : -1);
  int64_t told = 0;
  if (of_prompt > kFewLogprobs) told += of_prompt * static_cast<int64_t>(prompt.tokens.size());
  if (each > kFewLogprobs) told += each * prompt.max_tokens * params.best_of;
  if (told <= kMaxLogprobs) return std::nullopt;
  return ApiError{400,
                  fmt::format("This request would be told up to {} logprobs, and {} are the most: ask for fewer tokens "
                              "with {}, or for fewer logprobs of each.",
                              told, kMaxLogprobs, params.limit_name),
                  "invalid_value", each > kFewLogprobs ? "logprobs" : "prompt_logprobs"};
}

}  // namespace

Checked<Json> parse_body(std::string_view body) {
  auto parsed = Json::parse(body);
  if (!parsed.ok()) {
    return ApiError{400, fmt::format("The body of your request is not valid JSON: {}.", parsed.error().message),
                    "json_parse_error"};
  }
  if (!parsed.value().is_object()) {
    return ApiError{400,
                    fmt::format("The body of your request must be a JSON object, but it is {}.", parsed.value().kind()),
                    "invalid_type"};
  }
  return std::move(parsed).value();
}

std::string read_model(Fields& fields, const ServerOptions& options) {
  const auto name = fields.string("model");
  if (!name) return options.model_names.front();
  if (std::find(options.model_names.begin(), options.model_names.end(), *name) == options.model_names.end()) {
    fields.fail(model_not_found(*name, options.model_names));
  }
  return *name;
}

std::optional<int32_t> read_logprob_count(Fields& fields, std::string_view name, const TextModel& model) {
  const int32_t most = model.most_logprobs();
  const bool all = most == model.vocab_size();
  const auto count = fields.integer(name, all ? -1 : 0, most);
  if (!count) return std::nullopt;
  return *count < 0 ? most : static_cast<int32_t>(*count);
}

void read_logprob_ids(Fields& fields, const TextModel& model, SamplingParams& sampling) {
  auto ids = fields.token_ids("logprob_token_ids", model.vocab_size(), kMaxLogprobIds);
  if (!ids || ids->empty()) return;
  if (sampling.logprobs < 0) {
    fields.invalid("logprob_token_ids", "invalid_value",
                   "The 'logprob_token_ids' parameter is only allowed when 'logprobs' is given.");
  }
  sampling.logprob_ids = std::move(*ids);
}

AnswerParams read_answer_params(Fields& fields, const TextModel& model, int32_t min_max_tokens) {
  AnswerParams params;
  read_sampling(fields, model, params.sampling);
  read_logit_bias(fields, model.vocab_size(), params.sampling);
  read_bad_words(fields, model, params.sampling);
  read_allowed_tokens(fields, model.vocab_size(), params.sampling);
  read_stops(fields, model, params);
  read_streaming(fields, model.options.always_usage, params);
  read_prompt_logprobs(fields, model, params);
  read_limits(fields, min_max_tokens, params);
  params.seed = fields.integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  params.n = static_cast<int32_t>(fields.integer("n", 1, std::min(128, model.options.max_choices)).value_or(1));
  params.best_of = params.n;
  params.skip_special = fields.boolean("skip_special_tokens").value_or(true);
  params.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  params.tokens_as_ids = fields.boolean("return_tokens_as_token_ids").value_or(false);
  params.priority = static_cast<int32_t>(fields.integer("priority", -kMaxCount, kMaxCount).value_or(0));
  if (const auto salt = fields.string("cache_salt", 1024)) {
    params.cache_salt = *salt;
    if (salt->empty()) fields.invalid("cache_salt", "invalid_value", "Invalid 'cache_salt': it must not be empty.");
  }
  if (const auto interval = fields.integer("stream_interval", 1, kMaxCount); interval && *interval != 1) {
    fields.fail(unsupported("stream_interval", "Unsupported parameter: 'stream_interval' is always 1."));
  }
  if (const auto spaces = fields.boolean("spaces_between_special_tokens"); spaces && !*spaces) {
    fields.fail(unsupported("spaces_between_special_tokens",
                            "Unsupported parameter: 'spaces_between_special_tokens' is always true."));
  }
  if (const auto factor = fields.number("length_penalty", -Fields::kInfinity, Fields::kInfinity);
      factor && *factor != 1) {
    fields.fail(
        unsupported("length_penalty",
                    "Unsupported parameter: 'length_penalty' needs beam search, which this server does not have."));
  }
  fields.ignore(Fields::Kind::string, {"user", "session_id"});
  fields.refuse({"truncate_prompt_tokens", "truncation_side", "use_beam_search", "repetition_detection",
                 "prompt_embeds", "mm_processor_kwargs", "media_io_kwargs", "vllm_xargs", "kv_transfer_params",
                 "ec_transfer_params", "thinking_token_budget", "lora_path"});
  return params;
}

void read_unknown(Fields& fields, const ServerOptions& options, std::vector<std::string>& unknown) {
  fields.stop_describing();
  if (fields.failed()) return;
  unknown = fields.unknown();
  if (unknown.empty() || !options.strict_params) return;
  const std::string name = unknown.front().substr(0, kMaxIdBytes);
  fields.invalid(name, "unknown_parameter",
                 fmt::format("Unknown parameter: '{}'. Did you mean '{}'?", name, fields.nearest(name)));
}

std::optional<ApiError> check_text_size(const TextModel& model, size_t bytes, const AnswerParams& params,
                                        std::string_view param) {
  const size_t least = bytes / model.longest_token_bytes;
  if (least <= static_cast<size_t>(model.options.max_model_len)) return std::nullopt;
  return too_long(model, params, fmt::format("at least {}", least), 0, param);
}

std::optional<ApiError> fit_prompt(const TextModel& model, const AnswerParams& params, std::optional<int32_t> fallback,
                                   std::string_view param, Prompt& prompt) {
  const auto used = static_cast<int64_t>(prompt.tokens.size());
  const int64_t left = model.options.max_model_len - used;
  const int64_t asked = params.max_tokens.value_or(1);
  if (left < asked) {
    ApiError error = too_long(model, params, std::to_string(used), left, param);
    error.prompt_tokens = used;
    error.context_tokens = model.options.max_model_len;
    return error;
  }
  if (used == 0) {
    return ApiError{400, fmt::format("Invalid '{}': the prompt has no tokens.", param), "invalid_value",
                    std::string(param)};
  }
  const int64_t wanted = params.max_tokens ? *params.max_tokens : fallback ? *fallback : left;
  prompt.max_tokens = static_cast<int32_t>(std::min(wanted, left));
  return check_logprobs(params, prompt);
}

}  // namespace quern
