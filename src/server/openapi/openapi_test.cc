// /openapi.json says what readers of requests hold these to.
#include "server/openapi/openapi.h"

#include <algorithm>
#include <set>

#include "server/openapi/operations.h"
#include "server/server_fixture.h"

namespace quern {
namespace {

TextModel model_for(Endpoint endpoint) {
  TextModel model;
  model.options.model_names = {"m"};
  model.options.max_model_len = 100;
  const bool vectors = endpoint == Endpoint::embeddings || endpoint == Endpoint::ollama_embed ||
                       endpoint == Endpoint::ollama_embeddings || endpoint == Endpoint::llama_embedding;
  const bool scores = endpoint == Endpoint::score || endpoint == Endpoint::rerank;
  model.options.output = vectors ? OutputKind::pooled : scores ? OutputKind::scores : OutputKind::tokens;
  model.tokenizer = std::make_shared<ByteTokenizer>();
  return model;
}

/// Whether the reader refuses a value because of it, in one of the ways in which a body can be read.
bool refuses(const Operation& operation, const std::string& name, const Json& value) {
  const Json bodies[] = {Json().set("model", "m").set("input", "x"), Json().set("model", "m").set("content", "x"),
                         Json().set("model", "m").set("messages", Json::Array{}), Json().set("source", "m"),
                         Json().set("model", "m").set("prompt", "x").set("input_prefix", "").set("input_suffix", "")};
  return std::any_of(std::begin(bodies), std::end(bodies), [&](Json body) {
    body.set(name, value);
    Fields fields(body);
    operation.read(fields, model_for(operation.endpoint));
    return fields.failed() && fields.error()->param.find(name) != std::string::npos;
  });
}

TEST(OpenApi, EveryFieldThatIsReadIsToldAndNoOther) {
  for (const Operation& operation : operations()) {
    if (operation.read == nullptr) continue;
    const TextModel model = model_for(operation.endpoint);
    // Texts of either kind are read one way or the other.
    Json body(Json::Object{});
    Fields fields(body);
    operation.read(fields, model);
    std::set<std::string> read(fields.known().begin(), fields.known().end());
    if (operation.endpoint == Endpoint::tokenize) {
      for (const Json& other : {Json().set("messages", Json::Array{}), Json().set("content", "x")}) {
        Fields more(other);
        operation.read(more, model);
        read.insert(more.known().begin(), more.known().end());
      }
    }
    std::set<std::string> told;
    const Json schema = request_schema(operation.endpoint, model);
    for (const auto& [name, field] : schema.find("properties")->members()) told.insert(name);

    EXPECT_EQ(told, read) << operation.summary;
  }
}

TEST(OpenApi, EveryFieldIsDescribedAndHasAKind) {
  for (const Operation& operation : operations()) {
    if (operation.read == nullptr) continue;
    const Json schema = request_schema(operation.endpoint, model_for(operation.endpoint));
    for (const auto& [name, field] : schema.find("properties")->members()) {
      const bool refused = field.boolean("deprecated").value_or(false);
      EXPECT_TRUE(field.has("description") || refused) << operation.summary << ": " << name;
      EXPECT_TRUE(field.has("type") || field.has("enum")) << operation.summary << ": " << name;
    }
  }
}

/// Values just outside of what a field is told to be.
Json::Array outside(const Json& field) {
  Json::Array values;
  if (const auto low = field.number("minimum")) values.emplace_back(*low - 1);
  if (const auto high = field.number("maximum")) values.emplace_back(*high + 1);
  if (field.has("enum") && !field.has("deprecated")) values.emplace_back("no such word");
  if (field.has("deprecated")) values.emplace_back("x");
  const Json* types = field.find("type");
  const auto takes = [&](std::string_view type) {
    if (types == nullptr) return false;
    if (types->is_string()) return types->as_string() == type;
    return std::find(types->items().begin(), types->items().end(), Json(type)) != types->items().end();
  };
  if (types != nullptr && !takes("string")) values.emplace_back("x");
  if (types != nullptr && !takes("number") && !takes("integer")) values.emplace_back(1.5);
  if (types != nullptr && takes("integer")) values.emplace_back(1.5);
  return values;
}

TEST(OpenApi, WhatIsOutsideOfTheBoundsIsRefused) {
  int checked = 0;
  for (const Operation& operation : operations()) {
    if (operation.read == nullptr) continue;
    FieldNotes notes;
    Fields described(notes);
    operation.read(described, model_for(operation.endpoint));
    const Json schema = notes.schema();  // without what is handed on to a chat
    for (const auto& [name, field] : schema.find("properties")->members()) {
      for (const Json& value : outside(field)) {
        EXPECT_TRUE(refuses(operation, name, value)) << operation.summary << ": " << name << " " << value.dump();
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 300);
}

class OpenApiTest : public ServerTest {};

TEST_F(OpenApiTest, HasAllRoutes) {
  options_.api_keys = keys_of({"k"});
  start();

  const Json document = json(get("/openapi.json", {{"x-api-key", "k"}}));

  EXPECT_EQ(document.string("openapi"), "3.1.0");
  const Json& paths = *document.find("paths");
  EXPECT_EQ(paths.members().size(), static_cast<size_t>(kRouteCount));
  for (const Route& route : kRoutes) {
    const Json* path = paths.find(route.path);
    ASSERT_NE(path, nullptr) << route.path;
    EXPECT_EQ(path->has("get"), route.allows("GET")) << route.path;
    EXPECT_EQ(path->has("post"), route.allows("POST")) << route.path;
    EXPECT_EQ(path->has("delete"), route.allows("DELETE")) << route.path;
    for (const auto& [method, operation] : path->members())
      EXPECT_EQ(operation.find("security")->items().empty(), !needs_key(route.access)) << route.path;
  }
  EXPECT_EQ(get("/openapi.json").status, 401);
}

TEST_F(OpenApiTest, TellsAboutTheTokenizer) {
  start();

  const Json info = json(get("/tokenizer_info"));

  EXPECT_EQ(info.string("bos_token"), "<s>");
  EXPECT_EQ(info.string("eos_token"), "</s>");
  EXPECT_EQ(info.string("chat_template"), kTestTemplate);
  EXPECT_EQ(info.find("added_tokens_decoder")->find("258")->string("content"), "<x>");
}

}  // namespace
}  // namespace quern
