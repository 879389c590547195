// /v1/score and /v1/rerank: what they are asked.
#include <fmt/format.h>
#include <limits>

#include "server/openai/pooling_input.h"

namespace quern {
namespace {

constexpr const char* default_instruction =
    "Given a web search query, retrieve relevant passages that answer the query";

/// A string or an object with a text.
Checked<std::string> read_document(const Json& value, const std::string& name) {
  if (value.is_string()) return value.as_string();
  if (const auto text = value.string("text")) return *text;
  return invalid_field(name,
                       fmt::format("Invalid type for '{}': expected a string, but got {} instead.", name, value.kind()),
                       "invalid_type");
}

/// A string, an object with a text, or a list of them.
Checked<std::vector<std::string>> read_texts(const Json* value, const std::string& name) {
  if (value == nullptr)
    return invalid_field(name, fmt::format("Missing required parameter: '{}'.", name), "missing_required_parameter");
  if (!value->is_array()) {
    ASSIGN_OR_RETURN(std::string text, read_document(*value, name));
    return std::vector<std::string>{std::move(text)};
  }
  if (value->items().empty() || value->items().size() > max_pooling_inputs) {
    return invalid_field(name, fmt::format("Invalid '{}': it must have 1 to {} texts.", name, max_pooling_inputs));
  }
  std::vector<std::string> texts;
  for (const Json& item : value->items()) {
    ASSIGN_OR_RETURN(std::string text, read_document(item, name));
    texts.push_back(std::move(text));
  }
  return texts;
}

/// How Qwen's rerankers, language models that answer yes or no, were taught to be asked.
std::vector<TextPiece> question_of(const std::string& query, const std::string& document,
                                   const std::string& instruction) {
  return {{"<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
           "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: ",
           true},
          {instruction, false},
          {"\n<Query>: ", true},
          {query, false},
          {"\n<Document>: ", true},
          {document, false},
          {"<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", true}};
}

/// The texts on both sides of a request, and how the sides are called.
struct Sides {
  std::vector<std::string> firsts, seconds;
  std::string first_name, second_name;
};

/// How texts are compared.
struct Comparison {
  PoolingCall call;
  InputReader reader;
  std::string instruction;
};

/// What both routes are told.
Checked<Comparison> read_comparison(Fields& fields, const TextModel& model, PoolingCall::Kind kind) {
  PoolingCall call;
  call.kind = kind;
  read_pooling_fields(fields, model.options, call);
  if (!fields.failed() && !fields.describing() && model.options.output == OutputKind::tokens)
    return wrong_task(model.options, kind == PoolingCall::Kind::score ? "/v1/score" : "/v1/rerank");
  const InputReader reader(fields, model);
  call.raw_scores = !fields.boolean("use_activation").value_or(true);
  return Comparison{std::move(call), reader, fields.string("instruction").value_or(default_instruction)};
}

/// One text against each of the others, or the first against the first and so on.
std::optional<ApiError> add_inputs(Comparison& asked, const Sides& sides, const TextModel& model) {
  PoolingCall& call = asked.call;
  const size_t count = sides.seconds.size();
  if (sides.firsts.size() != 1 && sides.firsts.size() != count) {
    return invalid_field(sides.second_name,
                         fmt::format("Invalid '{}': {} texts cannot be compared with {} of '{}'; give one there, or as "
                                     "many.",
                                     sides.second_name, count, sides.firsts.size(), sides.first_name));
  }
  const auto add = [&](Checked<PoolingInput> input) -> std::optional<ApiError> {
    if (!input.ok()) return input.error();
    call.prompt_tokens += static_cast<int64_t>(input.value().tokens.size());
    call.inputs.push_back(std::move(input).value());
    return std::nullopt;
  };
  if (model.options.output == OutputKind::pooled) {
    call.first_texts = sides.firsts.size();
    for (const std::string& text : sides.firsts) {
      if (auto error = add(asked.reader.text(text, sides.first_name))) return error;
    }
    for (const std::string& text : sides.seconds) {
      if (auto error = add(asked.reader.text(text, sides.second_name))) return error;
    }
    return std::nullopt;
  }
  for (size_t i = 0; i < count; ++i) {
    const std::string& first = sides.firsts[sides.firsts.size() == 1 ? 0 : i];
    auto error =
        model.options.pooling.asks_yes_or_no
            ? add(asked.reader.pieces(question_of(first, sides.seconds[i], asked.instruction), sides.second_name))
            : add(asked.reader.pair(first, sides.seconds[i], sides.second_name));
    if (error) return error;
  }
  return std::nullopt;
}

/// The field under the first of its names that is there.
const Json* any_of(Fields& fields, std::initializer_list<std::string_view> names, std::string& found) {
  const Json* value = nullptr;
  found = *names.begin();
  for (const std::string_view name : names) {
    const Json* const here = fields.one_of(name, {Fields::Kind::string, Fields::Kind::array, Fields::Kind::object});
    if (value != nullptr || here == nullptr) continue;
    value = here;
    found = name;
  }
  return value;
}

}  // namespace

Checked<PoolingCall> parse_score(std::string_view body, const TextModel& model) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  Fields fields(json);
  return read_score(fields, model);
}

Checked<PoolingCall> read_score(Fields& fields, const TextModel& model) {
  ASSIGN_OR_RETURN(Comparison asked, read_comparison(fields, model, PoolingCall::Kind::score));
  Sides sides;
  const Json* const first = any_of(fields, {"text_1", "queries", "data_1"}, sides.first_name);
  const Json* const second = any_of(fields, {"text_2", "documents", "data_2"}, sides.second_name);
  read_unknown(fields, model.options, asked.call.unknown_fields);
  if (fields.failed()) return *fields.error();
  ASSIGN_OR_RETURN(sides.firsts, read_texts(first, sides.first_name));
  ASSIGN_OR_RETURN(sides.seconds, read_texts(second, sides.second_name));
  if (auto error = add_inputs(asked, sides, model)) return *error;
  return std::move(asked.call);
}

Checked<PoolingCall> parse_rerank(std::string_view body, const TextModel& model) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  Fields fields(json);
  return read_rerank(fields, model);
}

Checked<PoolingCall> read_rerank(Fields& fields, const TextModel& model) {
  ASSIGN_OR_RETURN(Comparison asked, read_comparison(fields, model, PoolingCall::Kind::rerank));
  PoolingCall& call = asked.call;
  call.top_n = static_cast<size_t>(fields.integer("top_n", 0, std::numeric_limits<int32_t>::max()).value_or(0));
  const bool give_back = fields.boolean("return_documents").value_or(true);
  Sides sides{{}, {}, "query", "documents"};
  const auto query = fields.string("query");
  const Json* const documents =
      fields.one_of("documents", {Fields::Kind::string, Fields::Kind::array, Fields::Kind::object});
  fields.refuse({"rank_fields", "max_chunks_per_doc", "max_tokens_per_doc"});
  if (!query) fields.invalid("query", "missing_required_parameter", "Missing required parameter: 'query'.");
  read_unknown(fields, model.options, call.unknown_fields);
  if (fields.failed()) return *fields.error();
  sides.firsts.push_back(*query);
  ASSIGN_OR_RETURN(sides.seconds, read_texts(documents, sides.second_name));
  if (auto error = add_inputs(asked, sides, model)) return *error;
  if (give_back) call.documents = std::move(sides.seconds);
  return std::move(call);
}

}  // namespace quern
