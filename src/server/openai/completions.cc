#include <fmt/format.h>

#include "server/openai/generation.h"

namespace quern {
namespace {

constexpr int32_t kDefaultMaxTokens = 16;

class PromptReader {
 public:
  PromptReader(const TextModel& model, const AnswerParams& params, bool add_special, bool echo)
      : model_(model), params_(params), add_special_(add_special), echo_(echo) {}

  /// A string, a list of strings, a list of ids or a list of lists of ids.
  Checked<std::vector<Prompt>> read(const Json& value) {
    std::vector<Prompt> prompts;
    const bool several = value.is_array() && !value.items().empty() && !value.items()[0].is_number();
    if (value.is_array() && value.items().empty()) return invalid("Invalid 'prompt': it must not be an empty list.");
    const auto count = several ? value.items().size() : size_t{1};
    if (count * static_cast<size_t>(params_.n) > static_cast<size_t>(model_.options.max_choices)) {
      return invalid(
          fmt::format("Invalid 'prompt': {} prompts with n = {} are more than the {} choices a request may have.",
                      count, params_.n, model_.options.max_choices));
    }
    for (size_t i = 0; i < count; ++i) {
      auto prompt = read_one(several ? value.items()[i] : value);
      if (!prompt.ok()) return std::move(prompt).error();
      prompts.push_back(std::move(prompt).value());
    }
    return prompts;
  }

 private:
  static ApiError invalid(std::string message, std::string code = "invalid_value") {
    return {400, std::move(message), std::move(code), "prompt"};
  }

  Checked<Prompt> read_one(const Json& value) {
    Prompt prompt;
    if (value.is_string()) {
      if (auto error = check_text_size(model_, value.as_string().size(), params_, "prompt")) return *error;
      auto tokens = model_.tokenizer->encode(value.as_string(), {.add_special = add_special_});
      if (!tokens.ok()) return invalid(tokens.error().message);
      prompt.tokens = std::move(tokens).value();
      if (echo_) prompt.echo = value.as_string();
    } else if (value.is_array()) {
      if (auto error = read_token_ids(value.items(), "prompt", model_.vocab_size(), prompt.tokens)) return *error;
      if (echo_) prompt.echo = model_.tokenizer->decode(prompt.tokens, false);
    } else {
      return invalid(
          fmt::format("Invalid type for 'prompt': expected a string, an array of strings, of token ids or of arrays of "
                      "token ids, but got {} instead.",
                      value.kind()),
          "invalid_type");
    }
    if (auto error = fit_prompt(model_, params_, kDefaultMaxTokens, "prompt", prompt)) return *error;
    return prompt;
  }

  const TextModel& model_;
  const AnswerParams& params_;
  const bool add_special_;
  const bool echo_;
};

void read_best_of(Fields& fields, int32_t n) {
  const auto best_of = fields.integer("best_of", 1, 20);
  if (!best_of || *best_of == n) return;
  if (*best_of < n)
    return fields.invalid("best_of", "invalid_value", "Invalid 'best_of': it must not be smaller than 'n'.");
  fields.fail(unsupported("best_of", "Unsupported parameter: 'best_of' must be equal to 'n'."));
}

}  // namespace

Checked<Generation> parse_completion(std::string_view body, const TextModel& model) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  Fields fields(json);
  Generation generation;
  generation.model = read_model(fields, model.options);
  AnswerParams& params = generation.params;
  params = read_answer_params(fields, model, 0);
  generation.request_id = fields.string("request_id", 128).value_or("");
  const bool echo = fields.boolean("echo").value_or(false);
  if (const auto logprobs = fields.integer("logprobs", 0, model.options.max_logprobs)) {
    params.sampling.logprobs = static_cast<int32_t>(*logprobs);
    if (echo)
      fields.fail(unsupported(
          "logprobs", "Unsupported parameter: 'logprobs' together with 'echo' is not supported by this server."));
  }
  if (params.max_tokens == 0 && !echo) {
    fields.invalid("max_tokens", "integer_below_min_value",
                   "Invalid 'max_tokens': 0 is only allowed when 'echo' is true.");
  }
  read_best_of(fields, params.n);
  const bool add_special = fields.boolean("add_special_tokens").value_or(true);
  fields.refuse({"suffix", "response_format"});
  const Json* prompt = fields.any("prompt");
  if (prompt == nullptr)
    fields.invalid("prompt", "missing_required_parameter", "Missing required parameter: 'prompt'.");
  read_unknown(fields, model.options, generation.unknown_fields);
  if (fields.failed()) return *fields.error();
  ASSIGN_OR_RETURN(generation.prompts, PromptReader(model, params, add_special, echo).read(*prompt));
  return generation;
}

}  // namespace quern
