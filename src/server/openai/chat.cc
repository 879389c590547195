#include <fmt/format.h>

#include "server/openai/generation.h"

namespace quern {
namespace {

void read_logprobs(Fields& fields, const TextModel& model, SamplingParams& sampling) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, model.options.max_logprobs);
  if (top && !wanted) {
    fields.invalid("top_logprobs", "invalid_value",
                   "The 'top_logprobs' parameter is only allowed when 'logprobs' is true.");
  }
  if (wanted) sampling.logprobs = static_cast<int32_t>(top.value_or(0));
}

/// Plain text is all there is: structured output and other modalities are refused by name.
void read_output_kind(Fields& fields) {
  if (const Json* format = fields.object("response_format")) {
    Fields members(*format, "response_format.");
    const auto type = members.choice("type", {"text", "json_object", "json_schema", "structural_tag"});
    if (!type && !members.failed()) {
      members.invalid("type", "missing_required_parameter", "Missing required parameter: 'response_format.type'.");
    }
    if (members.failed()) return fields.fail(*members.error());
    if (*type != "text") {
      return fields.fail(
          unsupported("response_format", fmt::format("Unsupported parameter: 'response_format' of type '{}' is not "
                                                     "supported by this server.",
                                                     *type)));
    }
  }
  if (const Json::Array* modalities = fields.array("modalities", 8)) {
    for (const Json& modality : *modalities) {
      if (!modality.is_string()) return fields.wrong_kind("modalities", "strings", modality);
      if (modality.as_string() != "text") {
        return fields.fail(unsupported("modalities", "Unsupported parameter: this model answers with text only."));
      }
    }
  }
}

void read_tools(Fields& fields) {
  const Json::Array* tools = fields.array("tools", 1024);
  if (tools != nullptr && !tools->empty()) {
    return fields.fail(unsupported("tools", "Unsupported parameter: 'tools' is not supported by this server."));
  }
  const Json* choice = fields.any("tool_choice");
  if (choice == nullptr) return;
  if (!choice->is_string() && !choice->is_object())
    return fields.wrong_kind("tool_choice", "a string or an object", *choice);
  if (choice->is_object() || (choice->as_string() != "none" && choice->as_string() != "auto")) {
    fields.invalid("tool_choice", "invalid_value",
                   "The 'tool_choice' parameter is only allowed when 'tools' are given.");
  }
}

void read_rest(Fields& fields) {
  using Kind = Fields::Kind;
  fields.ignore(Kind::boolean, {"store", "parallel_tool_calls"});
  fields.ignore(Kind::string,
                {"service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "verbosity"});
  fields.ignore(Kind::object, {"metadata", "prediction", "moderation", "prompt_cache_options"});
  fields.refuse({"functions", "function_call", "audio", "web_search_options", "chat_template", "documents", "echo"});
  if (const auto include = fields.boolean("include_reasoning"); include && !*include) {
    fields.fail(
        unsupported("include_reasoning", "Unsupported parameter: this server does not separate reasoning from text."));
  }
}

}  // namespace

Checked<Generation> parse_chat(std::string_view body, const TextModel& model) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  Fields fields(json);
  Generation generation;
  generation.chat = true;
  generation.model = read_model(fields, model.options);
  generation.params = read_answer_params(fields, model, 1);
  generation.request_id = fields.string("request_id", 128).value_or("");
  read_logprobs(fields, model, generation.params.sampling);
  read_output_kind(fields);
  read_tools(fields);
  read_rest(fields);
  auto tokens = render_conversation(fields, model, generation.params);
  read_unknown(fields, model.options, generation.unknown_fields);
  if (fields.failed()) return *fields.error();
  if (!tokens.ok()) return std::move(tokens).error();

  Prompt prompt;
  prompt.tokens = std::move(tokens).value();
  if (auto error = fit_prompt(model, generation.params, model.options.defaults.max_tokens, "messages", prompt))
    return *error;
  generation.prompts.push_back(std::move(prompt));
  return generation;
}

}  // namespace quern
