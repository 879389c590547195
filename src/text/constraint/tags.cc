#include "text/constraint/tags.h"

namespace quern::tags {
namespace {

Json format(std::string_view type, Json::Object members) {
  members.insert(members.begin(), {"type", Json(type)});
  return Json(std::move(members));
}

Json edge_json(const Edge& edge) {
  if (const auto* id = std::get_if<int32_t>(&edge)) return format("token", {{"token", *id}});
  return std::get<std::string>(edge);
}

}  // namespace

Json literal(std::string_view text) { return format("const_string", {{"value", text}}); }
Json regex(std::string_view pattern) { return format("regex", {{"pattern", pattern}}); }
Json grammar(std::string_view ebnf) { return format("grammar", {{"grammar", ebnf}}); }
Json any_text() { return format("any_text", {}); }

Json json(Json schema, std::string_view style) {
  return format("json_schema", {{"json_schema", std::move(schema)}, {"style", style}});
}

Json sequence(Json::Array parts) { return format("sequence", {{"elements", std::move(parts)}}); }
Json either(Json::Array parts) { return format("or", {{"elements", std::move(parts)}}); }
Json optional(Json part) { return format("optional", {{"content", std::move(part)}}); }
Json star(Json part) { return format("star", {{"content", std::move(part)}}); }

Json tag(const Edge& begin, Json content, const Edge& end) {
  return format("tag", {{"begin", edge_json(begin)}, {"content", std::move(content)}, {"end", edge_json(end)}});
}

Json triggered(const Triggered& parts) {
  const bool tokens = !parts.triggers.empty() && std::holds_alternative<int32_t>(parts.triggers.front());
  Json::Array triggers;
  for (const Edge& trigger : parts.triggers) {
    triggers.push_back(tokens ? Json(std::get<int32_t>(trigger)) : Json(std::get<std::string>(trigger)));
  }
  return format(tokens ? "token_triggered_tags" : "triggered_tags",
                {{tokens ? "trigger_tokens" : "triggers", std::move(triggers)},
                 {"tags", parts.tags},
                 {"at_least_one", parts.at_least_one},
                 {"stop_after_first", parts.stop_after_first}});
}

Json separated(Json::Array tags, std::string_view separator, bool at_least_one, bool stop_after_first) {
  return format("tags_with_separator", {{"tags", std::move(tags)},
                                        {"separator", separator},
                                        {"at_least_one", at_least_one},
                                        {"stop_after_first", stop_after_first}});
}

std::string document(Json format) {
  return Json(Json::Object{{"type", "structural_tag"}, {"format", std::move(format)}}).dump();
}

}  // namespace quern::tags
