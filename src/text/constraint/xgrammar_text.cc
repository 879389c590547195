#include "text/constraint/xgrammar_text.h"

#include <algorithm>
#include <fmt/format.h>

#include "text/constraint/schema.h"
#include "text/constraint/tags.h"
#include "text/pattern/unicode.h"

namespace quern {
namespace {

constexpr int kMostBrackets = 64;
constexpr size_t kMostRules = 2048;
constexpr size_t kMostChoices = 4096;

/// Nesting that a recursive parser would follow; quotes and classes are not told apart, which only counts more.
Status check_nesting(std::string_view text, std::string_view what) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '(')
      ++depth;
    else if (text[i] == ')' && depth > 0)
      --depth;
    if (depth > kMostBrackets) return Error{fmt::format("the {} nests more than {} brackets", what, kMostBrackets)};
  }
  return {};
}

Status check_plain_text(std::string_view text, std::string_view what) {
  if (text.empty()) return Error{fmt::format("the {} is empty", what)};
  if (!is_utf8(text) || text.find('\0') != std::string_view::npos) {
    return Error{fmt::format("the {} has bytes that are no text", what)};
  }
  return check_nesting(text, what);
}

Status check_grammar(std::string_view text) {
  TRY(check_plain_text(text, "grammar"));
  const auto rules = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) +
                     static_cast<size_t>(std::count(text.begin(), text.end(), '='));
  if (rules > 2 * kMostRules) return Error{fmt::format("the grammar has more than {} rules", kMostRules)};
  return {};
}

/// Finds patterns, and strings of limited length: XGrammar's have raw control characters, which JSON has not.
void look_at_strings(const Json& schema, XgrammarText& made) {
  if (schema.is_array()) {
    for (const Json& item : schema.items()) look_at_strings(item, made);
    return;
  }
  if (!schema.is_object()) return;
  for (const auto& [key, value] : schema.members()) {
    if (key == "minLength" || key == "maxLength") made.no_raw_control = true;
    if (key == "pattern") made.patterns.push_back(value.as_string());
    if (key == "properties" || key == "patternProperties" || key == "$defs") {
      for (const auto& [name, part] : value.members()) {
        if (key == "patternProperties") made.patterns.push_back(name);
        look_at_strings(part, made);
      }
    } else if (key != "enum") {
      look_at_strings(value, made);
    }
  }
}

Result<Json> schema_of(const Json& schema, bool strict, XgrammarText& made) {
  ASSIGN_OR_RETURN(Json rewritten, xgrammar_schema(schema, strict));
  look_at_strings(rewritten, made);
  return rewritten;
}

Result<XgrammarText> choice_text(const ConstraintSpec& spec) {
  if (spec.choices.empty()) return Error{"there must be at least one choice"};
  if (spec.choices.size() > kMostChoices) return Error{fmt::format("there are more than {} choices", kMostChoices)};
  Json::Array options;
  for (const std::string& choice : spec.choices) {
    if (choice.empty() || !is_utf8(choice)) return Error{"a choice must be text that is not empty"};
    options.push_back(tags::literal(choice));
  }
  XgrammarText made;
  made.kind = XgrammarText::Kind::structural_tag;
  made.text = tags::document(options.size() == 1 ? options[0] : tags::either(options));
  return made;
}

/// Walks the formats of a structural tag: schemas are rewritten, tokens become ids.
class TagRewriter {
 public:
  TagRewriter(const Tokenizer& tokenizer, XgrammarText& made) : tokenizer_(tokenizer), made_(made) {}

  Status rewrite(Json& format) {
    if (format.is_array()) {
      for (Json& item : format.items()) TRY(rewrite(item));
      return {};
    }
    if (!format.is_object()) return {};
    const std::string type = format.string("type").value_or("");
    if (type == "json_schema" || type == "qwen_xml_parameter") return rewrite_schema(format);
    if (type == "grammar") return check_grammar(format.string("grammar").value_or(""));
    if (type == "regex") return check_plain_text(format.string("pattern").value_or(""), "regular expression");
    for (auto& [key, value] : format.members()) {
      if (key == "token" || key == "trigger_tokens" || key == "exclude_tokens") {
        TRY(rewrite_tokens(value));
      } else {
        TRY(rewrite(value));
      }
    }
    return {};
  }

 private:
  Status rewrite_schema(Json& format) {
    const Json* schema = format.find("json_schema");
    if (schema == nullptr) return Error{"a format of type 'json_schema' needs a member 'json_schema'"};
    ASSIGN_OR_RETURN(Json made, schema_of(*schema, false, made_));
    format.set("json_schema", std::move(made));
    if (format.present("max_whitespace_cnt") == nullptr) format.set("max_whitespace_cnt", most_whitespace);
    return {};
  }

  Status rewrite_tokens(Json& value) {
    if (value.is_array()) {
      for (Json& item : value.items()) TRY(rewrite_tokens(item));
      return {};
    }
    std::optional<int32_t> id;
    if (value.is_string()) id = tokenizer_.id_of(value.as_string());
    if (value.is_integer() && value.as_integer() >= 0 && value.as_integer() < tokenizer_.size()) {
      id = static_cast<int32_t>(value.as_integer());
    }
    if (!id) return Error{fmt::format("{} is no token of this model", value.dump().substr(0, 100))};
    value = Json(*id);
    made_.tokens.push_back(*id);
    return {};
  }

  const Tokenizer& tokenizer_;
  XgrammarText& made_;
};

/// What vLLM called structures and triggers is XGrammar's triggered_tags.
Result<Json> format_of(const Json& document) {
  if (const Json* format = document.find("format")) return *format;
  const Json* structures = document.find("structures");
  const Json* triggers = document.find("triggers");
  if (structures == nullptr || !structures->is_array() || triggers == nullptr || !triggers->is_array()) {
    return Error{"a structural tag needs a 'format', or 'structures' and 'triggers'"};
  }
  Json::Array made;
  for (const Json& one : structures->items()) {
    const Json* schema = one.find("schema");
    const auto begin = one.string("begin");
    const auto end = one.string("end");
    if (!begin || !end) return Error{"every structure needs 'begin' and 'end'"};
    made.push_back(tags::tag(*begin, schema == nullptr ? tags::any_text() : tags::json(*schema), *end));
  }
  return Json(Json::Object{{"type", "triggered_tags"}, {"triggers", *triggers}, {"tags", std::move(made)}});
}

Result<XgrammarText> structural_tag_text(const ConstraintSpec& spec, const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const Json document, Json::parse(spec.text));
  if (!document.is_object()) return Error{"a structural tag must be a JSON object"};
  ASSIGN_OR_RETURN(Json format, format_of(document));
  XgrammarText made;
  made.kind = XgrammarText::Kind::structural_tag;
  TRY(TagRewriter(tokenizer, made).rewrite(format));
  made.text = tags::document(std::move(format));
  return made;
}

Result<XgrammarText> json_text(const ConstraintSpec& spec) {
  XgrammarText made;
  made.no_raw_control = true;
  Json schema(Json::Object{{"type", "object"}});
  if (spec.kind == ConstraintSpec::Kind::json_schema) {
    auto parsed = Json::parse(spec.text);
    if (!parsed.ok()) return Error{"the schema is not valid JSON: " + parsed.error().message};
    schema = std::move(parsed).value();
  }
  ASSIGN_OR_RETURN(const Json rewritten, schema_of(schema, spec.strict, made));
  made.text = rewritten.dump();
  return made;
}

}  // namespace

Result<XgrammarText> xgrammar_text(const ConstraintSpec& spec, const Tokenizer& tokenizer) {
  using Kind = ConstraintSpec::Kind;
  if (spec.kind == Kind::json_object || spec.kind == Kind::json_schema) return json_text(spec);
  if (spec.kind == Kind::choice) return choice_text(spec);
  if (spec.kind == Kind::structural_tag) return structural_tag_text(spec, tokenizer);
  XgrammarText made;
  made.text = spec.text;
  if (spec.kind == Kind::regex) {
    TRY(check_plain_text(spec.text, "regular expression"));
    made.kind = XgrammarText::Kind::regex;
  } else {
    TRY(check_grammar(spec.text));
    const bool ebnf = spec.text.find("::=") != std::string::npos;
    made.kind = ebnf ? XgrammarText::Kind::ebnf : XgrammarText::Kind::lark;
  }
  return made;
}

}  // namespace quern
