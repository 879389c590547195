#include "server/ollama/options.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "base/duration.h"
#include "server/ollama/names.h"

namespace quern {
namespace {

constexpr PeerDefaults kDefaults{.temperature = 0.8, .top_k = 40, .top_p = 0.9, .min_p = 0.0};

/// What a field is said to take; whoever reads it says it in words of its own.
const Json* any_of(Fields& fields, std::string_view name, std::initializer_list<Fields::Kind> kinds) {
  return fields.describing() ? fields.one_of(name, kinds) : fields.any(name);
}

/// Values that OpenAI's fields take under another name, or in a smaller range.
void copy_sampling(Fields& options, Json& body) {
  static constexpr std::pair<std::string_view, std::string_view> names[] = {{"temperature", "temperature"},
                                                                            {"min_p", "min_p"},
                                                                            {"presence_penalty", "presence_penalty"},
                                                                            {"frequency_penalty", "frequency_penalty"},
                                                                            {"repeat_penalty", "repetition_penalty"}};
  for (const auto& [theirs, ours] : names) {
    if (const auto value = options.number(theirs, -Fields::kInfinity, Fields::kInfinity)) body.set(ours, *value);
  }
  for (const std::string_view name : {"top_p", "typical_p"}) {
    if (const auto value = options.number(name, 0, Fields::kInfinity)) body.set(name, std::clamp(*value, 1e-6, 1.0));
  }
  for (const std::string_view name : {"top_k", "repeat_last_n"}) {
    if (const auto value = options.integer(name, -1, std::numeric_limits<int32_t>::max())) body.set(name, *value);
  }
  if (const auto seed =
          options.integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
      seed && *seed >= 0) {
    body.set("seed", *seed);
  }
}

/// What decides how Ollama loads a model; here the server's flags do. Samplers that Ollama has given up are refused.
void pass_over(Fields& options) {
  using Kind = Fields::Kind;
  for (const std::string_view name :
       {"num_ctx", "num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "draft_num_predict", "mirostat_tau",
        "mirostat_eta", "numa", "low_vram", "f16_kv", "logits_all", "vocab_only", "use_mmap", "use_mlock",
        "embedding_only", "penalize_newline"}) {
    any_of(options, name, {Kind::number, Kind::boolean});
  }
  const auto refuse = [&](std::string_view name, double neutral) {
    const auto value = options.number(name, -Fields::kInfinity, Fields::kInfinity);
    if (!value || *value == neutral) return;
    options.fail(unsupported(options.full_name(name), fmt::format("{} is not supported: leave it out.", name)));
  };
  refuse("mirostat", 0);
  refuse("tfs_z", 1);
}

void read_format(Fields& fields, Json& body) {
  const Json* format = any_of(fields, "format", {Fields::Kind::string, Fields::Kind::object});
  if (format == nullptr || (format->is_string() && format->as_string().empty())) return;
  if (format->is_string() && format->as_string() == "json") {
    body.set("response_format", Json().set("type", "json_object"));
  } else if (format->is_object()) {
    body.set("json_schema", *format);
  } else {
    fields.invalid(
        "format", "invalid_value",
        fmt::format("invalid format: {}; expected \"json\" or a JSON schema", format->dump().substr(0, 256)));
  }
}

/// Thinking is the chat template's to turn on and off.
void read_think(Fields& fields, const TextModel& model, const std::string& name, Json& body) {
  const Json* think = any_of(fields, "think", {Fields::Kind::boolean, Fields::Kind::string});
  if (think == nullptr) return;
  if (!think->is_bool() && !think->is_string()) return fields.wrong_kind("think", "true, false or a level", *think);
  const bool on = !think->is_bool() || think->as_bool();
  if (on && !model.options.reply_format.separates_reasoning()) {
    return fields.invalid("think", "unsupported_value", fmt::format("\"{}\" does not support thinking", name));
  }
  if (think->is_string()) body.set("reasoning_effort", *think);
  Json variables = body.present("chat_template_kwargs") == nullptr ? Json() : *body.present("chat_template_kwargs");
  variables.set("enable_thinking", on).set("thinking", on);
  body.set("chat_template_kwargs", std::move(variables));
}

void read_logprobs(Fields& fields, bool completion, Json& body) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, 20);
  if (!wanted) return;
  if (completion) {
    body.set("logprobs", top.value_or(0));
  } else {
    body.set("logprobs", true).set("top_logprobs", top.value_or(0));
  }
}

}  // namespace

std::optional<double> ollama_duration(const Json& value) {
  if (value.is_number()) return value.as_number();
  if (!value.is_string()) return std::nullopt;
  const std::string& text = value.as_string();
  const bool has_unit = text.find_last_of("0123456789.") + 1 < text.size();
  const bool zero = text == "0" || text == "+0" || text == "-0";
  if ((!has_unit && !zero) || text.find('d') != std::string::npos) return std::nullopt;  // days are ours alone
  const auto seconds = parse_duration(text);
  return seconds.ok() ? std::optional(*seconds) : std::nullopt;
}

OllamaCommon read_ollama_common(Fields& fields, const ServerOptions& server) {
  OllamaCommon common;
  common.model = fields.string("model").value_or("");
  if (common.model.empty()) {
    fields.invalid("model", "missing_required_parameter", "model is required");
  } else if (const std::string* served = find_served(common.model, server.model_names)) {
    common.served = *served;
  } else {
    fields.fail({404, fmt::format("model '{}' not found", common.model.substr(0, 256)), "model_not_found", "model"});
  }
  if (const Json* keep = any_of(fields, "keep_alive", {Fields::Kind::number, Fields::Kind::string})) {
    const auto seconds = ollama_duration(*keep);
    if (!seconds) {
      fields.invalid("keep_alive", "invalid_value",
                     "invalid keep_alive: expected seconds, or a duration such as \"5m\"; negative means for ever");
    }
    common.keep_alive_s = seconds;
  }
  return common;
}

void read_ollama_options(Fields& fields, const TextModel& model, bool completion, OllamaCommon& common, Json& body) {
  body.set("model", common.served).set("stream", fields.boolean("stream").value_or(true));
  fields.members("options", [&](Fields& options) {
    copy_sampling(options, body);
    common.limits.max_tokens = read_peer_tokens(options, "num_predict");
    common.limits.name = "num_predict";
    common.limits.stops = read_peer_stops(options, "stop");
    pass_over(options);
  });
  add_peer_defaults(kDefaults, model.options, body);
  read_format(fields, body);
  Json unused;  // a prompt without a template has no place for it
  read_think(fields, model, common.model, completion ? unused : body);
  read_logprobs(fields, completion, body);
  fields.ignore(Fields::Kind::boolean, {"truncate", "shift"});
}

}  // namespace quern
