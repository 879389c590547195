// /v1/embeddings: what it is asked.
#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "server/openai/pooling_input.h"

namespace quern {
namespace {

void read_dimensions(Fields& fields, const ServerOptions& options, PoolingCall& call) {
  const PoolingOptions& pooling = options.pooling;
  const auto asked = fields.integer("dimensions", 1, std::numeric_limits<int32_t>::max());
  if (!asked || *asked == pooling.dim) return;
  const auto& known = pooling.dimensions;
  if (!pooling.any_dimensions && known.empty()) {
    return fields.fail(
        unsupported("dimensions",
                    fmt::format("The model `{}` has vectors of {} values only: its files do not say that shorter ones "
                                "mean something (is_matryoshka).",
                                call.model, pooling.dim)));
  }
  if (*asked > pooling.dim) {
    return fields.invalid("dimensions", "integer_above_max_value",
                          fmt::format("Invalid 'dimensions': vectors have {} values.", pooling.dim));
  }
  if (!known.empty() && std::find(known.begin(), known.end(), static_cast<int32_t>(*asked)) == known.end()) {
    return fields.invalid("dimensions", "invalid_value",
                          fmt::format("Invalid 'dimensions': say one of {}.", fmt::join(known, ", ")));
  }
  call.dimensions = static_cast<int32_t>(*asked);
}

/// What goes before every text: the prompt that the request names, or the model's own.
std::string read_prompt(Fields& fields, const PoolingOptions& options) {
  const std::string name = fields.string("prompt_name", 128).value_or(options.default_prompt);
  if (name.empty()) return "";
  const auto found = options.prompts.find(name);
  if (found != options.prompts.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, text] : options.prompts) names.push_back(known);
  fields.invalid("prompt_name", "invalid_value",
                 names.empty() ? std::string("Invalid 'prompt_name': this model has no prompts.")
                               : fmt::format("Invalid 'prompt_name': say one of {}.", fmt::join(names, ", ")));
  return "";
}

/// A string, a list of strings, a list of ids or a list of lists of ids.
Checked<std::vector<PoolingInput>> read_inputs(const Json& value, const InputReader& reader,
                                               const std::string& prompt) {
  const std::string name = "input";
  const bool several = value.is_array() && !value.items().empty() && !value.items()[0].is_number();
  if (value.is_array() && value.items().empty())
    return invalid_field(name, "Invalid 'input': it must not be an empty list.");
  const size_t count = several ? value.items().size() : 1;
  if (count > max_pooling_inputs) {
    return invalid_field(name, fmt::format("Invalid 'input': at most {} texts, got {}.", max_pooling_inputs, count),
                         "array_above_max_length");
  }
  std::vector<PoolingInput> inputs;
  for (size_t i = 0; i < count; ++i) {
    const Json& item = several ? value.items()[i] : value;
    if (!item.is_string() && !item.is_array()) {
      return invalid_field(
          name,
          fmt::format("Invalid type for 'input': expected a string, an array of strings, of token ids or of "
                      "arrays of token ids, but got {} instead.",
                      item.kind()),
          "invalid_type");
    }
    if (item.is_string() && item.as_string().empty())
      return invalid_field(name, "Invalid 'input': it must not be an empty string.");
    ASSIGN_OR_RETURN(PoolingInput input,
                     item.is_string() ? reader.text(prompt + item.as_string(), name) : reader.ids(item.items(), name));
    inputs.push_back(std::move(input));
  }
  return inputs;
}

}  // namespace

Checked<PoolingCall> parse_embeddings(std::string_view body, const TextModel& model) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  return read_embeddings(json, model);
}

Checked<PoolingCall> read_embeddings(const Json& body, const TextModel& model) {
  Fields fields(body);
  return read_embeddings(fields, model);
}

Checked<PoolingCall> read_embeddings(Fields& fields, const TextModel& model) {
  PoolingCall call;
  read_pooling_fields(fields, model.options, call);
  if (!fields.failed() && !fields.describing() && model.options.output != OutputKind::pooled)
    return wrong_task(model.options, "/v1/embeddings");
  const InputReader reader(fields, model);
  call.base64 = fields.choice("encoding_format", {"float", "base64"}).value_or("float") == "base64";
  read_dimensions(fields, model.options, call);
  call.normalize = fields.boolean("normalize").value_or(model.options.pooling.normalize || call.dimensions > 0);
  const std::string prompt = read_prompt(fields, model.options.pooling);
  const Json* input = fields.one_of("input", {Fields::Kind::string, Fields::Kind::array});
  if (input == nullptr) {
    fields.invalid("input", "missing_required_parameter", "Missing required parameter: 'input'.");
  }
  fields.refuse({"messages"});
  read_unknown(fields, model.options, call.unknown_fields);
  if (fields.failed()) return *fields.error();
  ASSIGN_OR_RETURN(call.inputs, read_inputs(*input, reader, prompt));
  for (const PoolingInput& one : call.inputs) call.prompt_tokens += static_cast<int64_t>(one.tokens.size());
  return call;
}

}  // namespace quern
