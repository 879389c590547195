#include "server/openapi/shapes.h"

#include <string>

namespace quern::shapes {

Json kind(std::string_view type) { return Json().set("type", type); }
Json text() { return kind("string"); }
Json number() { return kind("number"); }
Json boolean() { return kind("boolean"); }
Json count() { return kind("integer").set("minimum", 0); }
Json null() { return kind("null"); }
Json word(Json value) { return Json().set("const", std::move(value)); }

Json words(std::initializer_list<std::string_view> values) {
  Json::Array list;
  for (const std::string_view value : values) list.emplace_back(value);
  return Json().set("enum", std::move(list));
}

Json list(Json items) { return kind("array").set("items", std::move(items)); }
Json map(Json values) { return kind("object").set("additionalProperties", std::move(values)); }
Json any_of(std::initializer_list<Json> schemas) { return Json().set("anyOf", Json::Array(schemas)); }
Json or_null(Json schema) { return any_of({std::move(schema), null()}); }
Json shared(std::string_view name) { return Json().set("$ref", "#/components/schemas/" + std::string(name)); }

Json object(Members members) {
  Json nothing = kind("object").set("properties", Json(Json::Object{})).set("required", Json::Array{});
  return with(std::move(nothing), members).set("additionalProperties", false);
}

Json with(Json object, Members members) {
  Json properties = *object.find("properties");
  Json::Array required = object.find("required")->items();
  for (auto [name, schema] : members) {
    const bool optional = name.ends_with('?');
    if (optional) name.remove_suffix(1);
    if (!optional) required.emplace_back(name);
    properties.set(name, std::move(schema));
  }
  return object.set("properties", std::move(properties)).set("required", std::move(required));
}

}  // namespace quern::shapes
