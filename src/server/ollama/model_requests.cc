#include "server/ollama/model_requests.h"

#include <fmt/format.h>

#include "server/openai/generation.h"

namespace quern {
namespace {

std::string read_name(Fields& fields, std::string_view field) {
  std::string name = fields.string(field).value_or("");
  if (name.empty()) fields.invalid(field, "missing_required_parameter", fmt::format("{} is required", field));
  return name;
}

/// "name" is how older clients call it.
std::string read_model_name(Fields& fields) {
  std::string older = fields.string("name").value_or("");
  std::string name = older.empty() ? read_name(fields, "model") : fields.string("model").value_or(older);
  fields.describe_as_optional("model");
  return name.empty() ? older : name;
}

OllamaModelRequest finish(Fields& fields, const ServerOptions& options, OllamaModelRequest request) {
  read_unknown(fields, options, request.unknown_fields);
  return request;
}

}  // namespace

OllamaModelRequest read_ollama_show(Fields& fields, const ServerOptions& options) {
  OllamaModelRequest request;
  request.model = read_model_name(fields);
  fields.ignore(Fields::Kind::boolean, {"verbose"});
  fields.refuse({"system", "template", "options"});
  return finish(fields, options, std::move(request));
}

OllamaModelRequest read_ollama_pull(Fields& fields, const ServerOptions& options) {
  OllamaModelRequest request;
  request.model = read_model_name(fields);
  request.stream = fields.boolean("stream").value_or(true);
  fields.refuse({"insecure", "username", "password"});
  return finish(fields, options, std::move(request));
}

OllamaModelRequest read_ollama_copy(Fields& fields, const ServerOptions& options) {
  OllamaModelRequest request;
  request.model = read_name(fields, "source");
  request.destination = read_name(fields, "destination");
  return finish(fields, options, std::move(request));
}

OllamaModelRequest read_ollama_delete(Fields& fields, const ServerOptions& options) {
  OllamaModelRequest request;
  request.model = read_model_name(fields);
  return finish(fields, options, std::move(request));
}

}  // namespace quern
