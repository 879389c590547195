#include "server/openapi/openapi.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <utility>

#include "base/check.h"
#include "server/openapi/answers.h"
#include "server/openapi/operations.h"

namespace quern {
namespace {

Json::Object& properties_of(Json& schema) {
  const auto found = std::find_if(schema.members().begin(), schema.members().end(),
                                  [](const auto& member) { return member.first == "properties"; });
  CHECK(found != schema.members().end());
  return found->second.members();
}

Json described(Json schema) {
  for (auto& [name, field] : properties_of(schema)) {
    if (field.find("properties") != nullptr) field = described(std::move(field));
    if (const std::string_view text = description_of(name); !text.empty()) field.set("description", text);
  }
  return schema;
}

Json fields_of(const Operation& operation, const TextModel& model) {
  FieldNotes notes;
  Fields fields(notes);
  operation.read(fields, model);
  return notes.schema();
}

std::string operation_id(std::string_view method, std::string_view path) {
  std::string id(method);
  std::transform(id.begin(), id.end(), id.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char c : path) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (plain || id.back() != '_') id += plain ? c : '_';
  }
  return id;
}

Json parameter(std::string_view name, std::string_view in, Json schema) {
  return Json().set("name", name).set("in", in).set("required", in == "path").set("schema", std::move(schema));
}

Json::Array parameters_of(std::string_view path) {
  Json::Array list;
  if (const size_t begin = path.find('{'); begin != std::string_view::npos) {
    const std::string_view name = path.substr(begin + 1, path.find('}') - begin - 1);
    list.push_back(parameter(name, "path", Json().set("type", "string").set("minLength", 1)));
  }
  if (path.ends_with("/input_items")) {
    list.push_back(parameter("order", "query", Json().set("enum", Json::Array{Json("asc"), Json("desc")})));
    list.push_back(parameter("limit", "query", Json().set("type", "integer").set("minimum", 1).set("maximum", 100)));
    list.push_back(parameter("after", "query", Json().set("type", "string")));
  }
  return list;
}

std::string_view plain_type(Endpoint endpoint) {
  return endpoint == Endpoint::root || endpoint == Endpoint::metrics ? "text/plain" : "application/json";
}

Json answers_of(const Route& route, const Operation* operation) {
  Json whole(Json::Object{});
  if (Json schema = answer_schema(route.endpoint); !schema.is_null()) whole.set("schema", std::move(schema));
  Json content = Json().set(plain_type(route.endpoint), std::move(whole));
  if (operation != nullptr && operation->streams) {
    Json one(Json::Object{});
    if (Json schema = stream_schema(route.endpoint); !schema.is_null()) one.set("schema", std::move(schema));
    content.set(route.protocol == Protocol::ollama ? "application/x-ndjson" : "text/event-stream", std::move(one));
  }
  Json error = Json().set("description", "What is wrong with the request, or with the server");
  if (route.protocol == Protocol::openai) {
    const Json schema = Json().set("$ref", "#/components/schemas/Error");
    error.set("content", Json().set("application/json", Json().set("schema", schema)));
  }
  return Json()
      .set("200", Json().set("description", "The answer").set("content", std::move(content)))
      .set("default", std::move(error));
}

Json security_of(const Route& route, const ServerOptions& options) {
  if (options.api_keys.empty() || !needs_key(route.access)) return Json(Json::Array{});
  Json::Array ways;
  for (const char* name : {"bearer", "key"}) ways.push_back(Json().set(name, Json::Array{}));
  return Json(std::move(ways));
}

Json operation_object(const Route& route, std::string_view method, const TextModel& model) {
  const Operation* operation = operation_of(route.endpoint);
  Json object = Json().set("operationId", operation_id(method, route.path));
  object.set("summary", operation == nullptr ? route.path : operation->summary);
  if (Json::Array list = parameters_of(route.path); !list.empty()) object.set("parameters", std::move(list));
  if (operation != nullptr && operation->read != nullptr) {
    Json content = Json().set("application/json", Json().set("schema", request_schema(route.endpoint, model)));
    object.set("requestBody", Json().set("required", true).set("content", std::move(content)));
  }
  return object.set("responses", answers_of(route, operation)).set("security", security_of(route, model.options));
}

Json components() {
  Json bearer = Json().set("type", "http").set("scheme", "bearer");
  Json key = Json().set("type", "apiKey").set("in", "header").set("name", "x-api-key");
  return Json()
      .set("schemas", shared_schemas())
      .set("securitySchemes", Json().set("bearer", std::move(bearer)).set("key", std::move(key)));
}

}  // namespace

/// Fields that are handed on to a chat are held to what that says.
Json request_schema(Endpoint endpoint, const TextModel& model) {
  Json schema = fields_of(*operation_of(endpoint), model);
  const Json chat = fields_of(*operation_of(Endpoint::chat), model);
  for (auto& [name, field] : properties_of(schema)) {
    const Json* of_chat = chat.find("properties")->find(name);
    if (field.members().empty() && of_chat != nullptr) field = *of_chat;
  }
  return described(std::move(schema));
}

std::string openapi_document(const TextModel& model) {
  Json paths(Json::Object{});
  for (const Route& route : kRoutes) {
    Json item(Json::Object{});
    for (const std::string_view method : {"GET", "POST", "DELETE"}) {
      if (!route.allows(method)) continue;
      std::string name(method);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      item.set(name, operation_object(route, method, model));
    }
    paths.set(route.path, std::move(item));
  }
  Json info = Json().set("title", "Quern").set("version", model.options.version);
  Json document = Json().set("openapi", "3.1.0").set("info", std::move(info));
  const std::string& root = model.options.root_path;
  if (!root.empty()) document.set("servers", Json::Array{Json().set("url", root)});
  return document.set("paths", std::move(paths)).set("components", components()).dump();
}

}  // namespace quern
