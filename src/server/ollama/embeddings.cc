#include "server/ollama/embeddings.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "base/clock.h"
#include "server/ollama/options.h"

namespace quern {
namespace {

using Vectors = std::vector<std::vector<float>>;

std::string embed_answer(const std::string& model, const Vectors& vectors, int64_t arrived_us, int64_t tokens) {
  std::string out = "{\"model\":";
  append_json_string(out, model);
  out += ",\"embeddings\":[";
  for (size_t i = 0; i < vectors.size(); ++i) {
    if (i > 0) out += ',';
    append_floats(out, vectors[i]);
  }
  const int64_t total = std::max<int64_t>(1, now_us() - arrived_us) * 1000;
  return out + fmt::format(R"(],"total_duration":{},"load_duration":0,"prompt_eval_count":{}}})", total, tokens);
}

/// What requests of both routes share; the texts are still missing.
Json read_shared(Fields& fields, const ServerOptions& server, OllamaCommon& common) {
  common = read_ollama_common(fields, server);
  fields.ignore(Fields::Kind::object, {"options"});
  return Json().set("model", common.served);
}

Checked<PoolingCall> finish(Fields& fields, const Json& body, const OllamaCommon& common, const TextModel& model) {
  std::vector<std::string> unknown;
  read_unknown(fields, model.options, unknown);
  if (fields.failed()) return *fields.error();
  ASSIGN_OR_RETURN(PoolingCall call, read_embeddings(body, model));
  call.model = common.model;
  call.unknown_fields = std::move(unknown);
  call.keep_alive_s = common.keep_alive_s;
  return call;
}

bool is_text(const Json& value) { return value.is_string(); }

}  // namespace

Checked<PoolingCall> parse_ollama_embed(std::string_view body, const TextModel& model) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  Fields fields(json);
  return read_ollama_embed(fields, model);
}

Checked<PoolingCall> read_ollama_embed(Fields& fields, const TextModel& model) {
  OllamaCommon common;
  Json asked = read_shared(fields, model.options, common);
  asked.set("normalize", true);
  if (fields.boolean("truncate").value_or(true)) asked.set("truncate_prompt_tokens", -1);
  const Json* dimensions = fields.one_of("dimensions", {Fields::Kind::number});
  if (dimensions != nullptr && *dimensions != Json(0)) asked.set("dimensions", *dimensions);
  if (fields.describing()) fields.one_of("input", {Fields::Kind::string, Fields::Kind::array});
  const Json* input = fields.any("input");
  const bool texts =
      input == nullptr || is_text(*input) || (input->is_array() && std::ranges::all_of(input->items(), is_text));
  if (!texts) fields.invalid("input", "invalid_type", "invalid input type");
  const bool empty = input == nullptr ||
                     (input->is_string() ? input->as_string().empty() : input->is_array() && input->items().empty());
  if (!fields.failed() && empty) {
    PoolingCall none;
    none.keep_alive_s = common.keep_alive_s;
    none.answer = embed_answer(common.model, {}, now_us(), 0);
    return none;
  }
  asked.set("input", input == nullptr ? Json() : *input);
  ASSIGN_OR_RETURN(PoolingCall call, finish(fields, asked, common, model));
  call.form = [](const PoolingCall& made, const Vectors& vectors, int64_t arrived_us) {
    return embed_answer(made.model, vectors, arrived_us, made.prompt_tokens);
  };
  return call;
}

Checked<PoolingCall> parse_ollama_embeddings(std::string_view body, const TextModel& model) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  Fields fields(json);
  return read_ollama_embeddings(fields, model);
}

Checked<PoolingCall> read_ollama_embeddings(Fields& fields, const TextModel& model) {
  OllamaCommon common;
  Json asked = read_shared(fields, model.options, common);
  const std::string prompt = fields.string("prompt").value_or("");
  if (!fields.failed() && prompt.empty()) {
    PoolingCall none;
    none.keep_alive_s = common.keep_alive_s;
    none.answer = R"({"embedding":[]})";
    return none;
  }
  asked.set("input", prompt);
  ASSIGN_OR_RETURN(PoolingCall call, finish(fields, asked, common, model));
  call.form = [](const PoolingCall&, const Vectors& vectors, int64_t) {
    std::string out = "{\"embedding\":";
    append_floats(out, vectors.front());
    return out + '}';
  };
  return call;
}

}  // namespace quern
