// Parts of structural tags: free text, literals, JSON and tagged contents, put together as JSON that the kind
// structural_tag of a ConstraintSpec takes. Tokens that are control tokens of the vocabulary are named by id. Values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"

namespace quern::tags {

/// A text that is matched as characters, or one token by its id.
using Edge = std::variant<std::string, int32_t>;

Json literal(std::string_view text);
Json regex(std::string_view pattern);
Json grammar(std::string_view ebnf);
/// Free text; as the content of a tag it goes on to the tag's end.
Json any_text();
/// A value by its schema. `style` says how an object is written: "json", or what a family of models uses for the
/// arguments of tools: "qwen_xml", "deepseek_xml", "minimax_xml", "glm_xml", "cohere_xml", "kimi_k3_xml".
Json json(Json schema, std::string_view style = "json");
Json sequence(Json::Array parts);
Json either(Json::Array parts);
Json optional(Json part);
/// Any number of them, none too.
Json star(Json part);
/// `begin`, `content`, `end`.
Json tag(const Edge& begin, Json content, const Edge& end);

struct Triggered {
  std::vector<Edge> triggers;  // all texts or all tokens; every tag begins with one of them
  Json::Array tags;            // made by tag()
  bool at_least_one = false;   // nothing but tags from the start, until one is there
  bool stop_after_first = false;
};
/// Free text in which a trigger makes one of the tags due.
Json triggered(const Triggered& parts);
/// Tags with `separator` between them, and nothing else.
Json separated(Json::Array tags, std::string_view separator, bool at_least_one, bool stop_after_first);

/// The text for ConstraintSpec.
std::string document(Json format);

}  // namespace quern::tags
