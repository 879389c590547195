#include "text/tool_calls/python_grammar.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <utility>
#include <vector>

namespace quern {
namespace {

/// What every grammar has. Surrogates have no escapes: they are no characters.
constexpr std::string_view kLiterals = R"EBNF(
comma ::= "," " "?
hex ::= [0-9a-fA-F]
escape ::= "\\" ([^xuUN] | "x" [0-7] hex | "u" ([0-9a-cefA-CEF] hex | [dD] [0-7]) hex hex)
string ::= "'" ([^'\\] | escape)* "'" | "\"" ([^"\\] | escape)* "\""
integer ::= "-"? ("0" | [1-9] [0-9]*)
number ::= integer ("." [0-9]+)? ([eE] [-+]? [0-9]+)?
boolean ::= "True" | "False" | "true" | "false"
null ::= "None" | "null"
list ::= "[" (literal (comma literal)*)? "]"
pair ::= string ":" " "? literal
dict ::= "{" (pair (comma pair)*)? "}"
literal ::= string | number | boolean | null | list | dict
keyword ::= [A-Za-z_] [A-Za-z0-9_]* "=" literal
)EBNF";

/// A text as a terminal.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + '"';
}

/// A text as Python writes it between these quotes.
std::string python_string(std::string_view text, char quote) {
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') out += '\\';
    c == '\n' ? out += "\\n" : out += c;
  }
  return out + quote;
}

/// Just this value.
std::string constant(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_bool()) return value.as_bool() ? R"(("True" | "true"))" : R"(("False" | "false"))";
  if (!value.is_string()) return quoted(value.dump());
  const std::string& text = value.as_string();
  return fmt::format("({} | {})", quoted(python_string(text, '\'')), quoted(python_string(text, '"')));
}

class PythonRules {
 public:
  explicit PythonRules(const Json& schema) : schema_(schema) {}

  std::string text() {
    const Json* properties = schema_.find("properties");
    const bool named = properties != nullptr && properties->is_object() && !properties->members().empty();
    const Json* others = schema_.find("additionalProperties");
    const bool open = !named && (others == nullptr || !others->is_bool() || others->as_bool());
    std::string root = open ? "(keyword (comma keyword)*)?" : "\"\"";
    if (named) root = members(schema_, *properties, [](const std::string& key) { return quoted(key + "="); });
    return fmt::format("root ::= {}\n{}{}", root, rules_, kLiterals);
  }

 private:
  std::string rule(std::string_view body) {
    const std::string name = fmt::format("r{}", count_++);
    rules_ += fmt::format("{} ::= {}\n", name, body);
    return name;
  }

  /// The members in the schema's order with commas between; those that are not required may be left out.
  template <typename KeyText>
  std::string members(const Json& schema, const Json& properties, KeyText key_text) {
    const Json* required = schema.find("required");
    const auto must = [&](const std::string& key) {
      return required != nullptr && required->is_array() &&
             std::ranges::any_of(required->items(), [&](const Json& one) { return one == Json(key); });
    };
    std::string first = "\"\"";  // from here on, with nothing before
    std::string rest = "\"\"";   // the same after another member
    const auto& all = properties.members();
    for (auto member = all.rbegin(); member != all.rend(); ++member) {
      const std::string here = rule(key_text(member->first) + " " + inside(member->second));
      const std::string skipped_first = must(member->first) ? "" : " | " + first;
      const std::string skipped_rest = must(member->first) ? "" : " | " + rest;
      first = rule(fmt::format("{} {}{}", here, rest, skipped_first));
      rest = rule(fmt::format("comma {} {}{}", here, rest, skipped_rest));
    }
    return first;
  }

  /// A value inside a container, where references may lead back to what they stand in.
  std::string inside(const Json& schema) {
    const std::vector<std::string> outer = std::exchange(followed_, {});
    std::string found = value(schema);
    followed_ = outer;
    return found;
  }

  std::string value(const Json& schema) {
    if (!schema.is_object()) return "literal";
    if (const auto target = schema.string("$ref")) return reference(*target);
    if (const Json* only = schema.find("const")) return constant(*only);
    if (const Json* all = schema.find("enum"); all != nullptr && all->is_array()) {
      return either(all->items(), [](const Json& one) { return constant(one); });
    }
    for (const char* key : {"anyOf", "oneOf"}) {
      const Json* all = schema.find(key);
      if (all == nullptr || !all->is_array()) continue;
      return either(all->items(), [&](const Json& one) { return value(one); });
    }
    const Json* type = schema.find("type");
    if (type == nullptr) return "literal";
    if (type->is_string()) return of_type(schema, type->as_string());
    if (!type->is_array()) return "literal";
    return either(type->items(),
                  [&](const Json& one) { return of_type(schema, one.is_string() ? one.as_string() : ""); });
  }

  template <typename Write>
  std::string either(const Json::Array& all, Write write) {
    std::vector<std::string> each;
    for (const Json& one : all) each.push_back(write(one));
    return each.empty() ? "literal" : rule(fmt::format("{}", fmt::join(each, " | ")));
  }

  std::string of_type(const Json& schema, std::string_view type) {
    for (const std::string_view simple : {"string", "integer", "number", "boolean", "null"}) {
      if (type == simple) return std::string(simple);
    }
    if (type == "array") {
      const Json* items = schema.find("items");
      if (items == nullptr || !items->is_object()) return "list";
      const std::string item = inside(*items);
      return rule(fmt::format("\"[\" ({} (comma {})*)? \"]\"", item, item));
    }
    if (type != "object") return "literal";
    const Json* properties = schema.find("properties");
    if (properties == nullptr || !properties->is_object() || properties->members().empty()) return "dict";
    const auto key_text = [](const std::string& key) { return constant(Json(key)) + " \":\" \" \"?"; };
    return rule(fmt::format("\"{{\" {} \"}}\"", members(schema, *properties, key_text)));
  }

  /// One rule for each target; a reference that leads to itself with nothing between says nothing.
  std::string reference(const std::string& target) {
    if (std::ranges::find(followed_, target) != followed_.end()) return "literal";
    const auto known = references_.find(target);
    if (known != references_.end()) return known->second;
    const Json* found = resolve(target);
    if (found == nullptr) return "literal";
    const std::string name = fmt::format("t{}", references_.size());
    references_[target] = name;
    followed_.push_back(target);
    const std::string body = value(*found);
    followed_.pop_back();
    rules_ += fmt::format("{} ::= {}\n", name, body);
    return name;
  }

  const Json* resolve(std::string_view target) const {
    if (!target.starts_with('#')) return nullptr;
    target.remove_prefix(1);
    const Json* at = &schema_;
    while (at != nullptr && target.starts_with('/')) {
      target.remove_prefix(1);
      const std::string key(target.substr(0, target.find('/')));
      at = at->is_object() ? at->find(key) : nullptr;
      target.remove_prefix(key.size());
    }
    return at;
  }

  const Json& schema_;
  std::string rules_;
  int count_ = 0;
  std::map<std::string, std::string> references_;  // the rule of each
  std::vector<std::string> followed_;              // since the last container
};

}  // namespace

std::string python_arguments(const Json& schema) { return PythonRules(schema).text(); }

}  // namespace quern
