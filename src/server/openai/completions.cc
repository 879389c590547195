#include <algorithm>
#include <fmt/format.h>

#include "server/openai/fill_in.h"
#include "server/openai/generation.h"
#include "server/openai/structured.h"
#include "server/openai/wire.h"
#include "text/detokenizer.h"

namespace quern {
namespace {

constexpr int32_t kDefaultMaxTokens = 16;

class PromptReader {
 public:
  PromptReader(const TextModel& model, const Generation& generation, bool add_special)
      : model_(model), generation_(generation), params_(generation.params), add_special_(add_special) {}

  /// A string, a list of strings, a list of ids or a list of lists of ids.
  Checked<std::vector<Prompt>> read(const Json& value) {
    std::vector<Prompt> prompts;
    const bool several = value.is_array() && !value.items().empty() && !value.items()[0].is_number();
    if (value.is_array() && value.items().empty()) return invalid("Invalid 'prompt': it must not be an empty list.");
    const auto count = several ? value.items().size() : size_t{1};
    if (count * static_cast<size_t>(params_.best_of) > static_cast<size_t>(model_.options.max_choices)) {
      return invalid(
          fmt::format("Invalid 'prompt': {} prompts with n = {} are "
                      "more than the {} choices a request may have.",
                      count, params_.best_of, model_.options.max_choices));
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
      const size_t bytes = value.as_string().size() + (params_.suffix ? params_.suffix->size() : 0);
      if (auto error = check_text_size(model_, bytes, params_, "prompt")) return *error;
      auto tokens = encode(value.as_string());
      if (!tokens.ok()) return invalid(tokens.error().message);
      prompt.tokens = std::move(tokens).value();
      if (params_.echo) prompt.echo = value.as_string();
    } else if (value.is_array()) {
      if (params_.suffix) return invalid("Invalid 'prompt': with 'suffix' it must be text, not token ids.");
      if (auto error = read_token_ids(value.items(), "prompt", model_.vocab_size(), prompt.tokens)) return *error;
      if (params_.echo) prompt.echo = model_.tokenizer->decode(prompt.tokens, false);
    } else {
      return invalid(fmt::format("Invalid type for 'prompt': expected a string, an array "
                                 "of strings, of token ids or of arrays of "
                                 "token ids, but got {} instead.",
                                 value.kind()),
                     "invalid_type");
    }
    if (auto error = fit_prompt(model_, params_, kDefaultMaxTokens, "prompt", prompt)) return *error;
    if (generation_.echoes_logprobs()) add_offsets(prompt, value.is_string());
    return prompt;
  }

  Result<std::vector<int32_t>> encode(const std::string& text) const {
    if (!params_.suffix) return model_.tokenizer->encode(text, {.add_special = add_special_});
    const auto pieces = middle_pieces(*middle_marks(*model_.tokenizer), text, *params_.suffix);
    return model_.tokenizer->encode_pieces(pieces, add_special_);
  }

  /// Special tokens of a text are those that the tokenizer added, which the
  /// text does not show.
  void add_offsets(Prompt& prompt, bool is_text) const {
    Detokenizer detokenizer(model_.tokenizer, is_text);
    const int64_t end = utf8_length(prompt.echo);
    int64_t characters = 0;
    for (const int32_t token : prompt.tokens) {
      prompt.echo_offsets.push_back(std::min(characters, end));
      characters += utf8_length(detokenizer.add(token));
    }
  }

  const TextModel& model_;
  const Generation& generation_;
  const AnswerParams& params_;
  const bool add_special_;
};

void read_best_of(Fields& fields, AnswerParams& params) {
  const auto best_of = fields.integer("best_of", 1, 20);
  if (!best_of) return;
  params.best_of = static_cast<int32_t>(*best_of);
  if (params.best_of < params.n) {
    return fields.invalid("best_of", "invalid_value", "Invalid 'best_of': it must not be smaller than 'n'.");
  }
  if (params.sampling.tell_logits && params.best_of > params.n) {
    return fields.fail(unsupported("best_of",
                                   "Unsupported parameter: 'best_of' needs logprobs, in whose place this server tells "
                                   "logits."));
  }
  if (params.stream && params.best_of > params.n) {
    fields.invalid("best_of", "invalid_value",
                   "Invalid 'best_of': answers that are streamed cannot be "
                   "compared; it must be equal to 'n'.");
  }
}

/// What follows the text that is wanted, for models that are trained to fill
/// in.
void read_suffix(Fields& fields, const TextModel& model, AnswerParams& params) {
  params.suffix = fields.string("suffix");
  if (!params.suffix || params.suffix->empty()) return params.suffix.reset();
  if (!middle_marks(*model.tokenizer)) {
    return fields.fail(unsupported("suffix",
                                   "Unsupported parameter: 'suffix' needs a model with tokens "
                                   "for filling in the middle of a text."));
  }
  if (params.echo && params.sampling.logprobs >= 0) {
    fields.fail(unsupported("suffix",
                            "Unsupported parameter: 'suffix' together with "
                            "'echo' and 'logprobs' is not supported."));
  }
}

}  // namespace

Checked<Generation> parse_completion(std::string_view body, const TextModel& model) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  return read_completion(json, model);
}

Checked<Generation> read_completion(const Json& body, const TextModel& model) {
  Fields fields(body);
  return read_completion(fields, model);
}

Checked<Generation> read_completion(Fields& fields, const TextModel& model) {
  Generation generation;
  generation.model = read_model(fields, model.options);
  AnswerParams& params = generation.params;
  params = read_answer_params(fields, model, 0);
  generation.request_id = fields.string("request_id", 128).value_or("");
  params.echo = fields.boolean("echo").value_or(false);
  params.sampling.logprobs = read_logprob_count(fields, "logprobs", model).value_or(-1);
  read_logprob_ids(fields, model, params.sampling);
  if (params.max_tokens == 0 && !params.echo && !params.prompt_logprobs) {
    fields.invalid("max_tokens", "integer_below_min_value",
                   "Invalid 'max_tokens': 0 is only allowed when 'echo' is "
                   "true or 'prompt_logprobs' is given.");
  }
  read_best_of(fields, params);
  const bool add_special = fields.boolean("add_special_tokens").value_or(true);
  read_suffix(fields, model, params);
  read_constraint(fields, generation);
  const Json* prompt = fields.one_of("prompt", {Fields::Kind::string, Fields::Kind::array});
  if (prompt == nullptr)
    fields.invalid("prompt", "missing_required_parameter", "Missing required parameter: 'prompt'.");
  read_unknown(fields, model.options, generation.unknown_fields);
  if (fields.failed()) return *fields.error();
  ASSIGN_OR_RETURN(generation.prompts, PromptReader(model, generation, add_special).read(*prompt));
  return generation;
}

}  // namespace quern
