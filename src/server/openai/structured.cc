#include "server/openai/structured.h"

#include <algorithm>
#include <fmt/format.h>

namespace quern {
namespace {

using Kind = ConstraintSpec::Kind;

constexpr size_t kMostChoices = 4096;
constexpr size_t kLongestName = 64;

class ConstraintReader {
 public:
  ConstraintReader(Fields& fields, Generation& generation) : fields_(fields), generation_(generation) {}

  void read() {
    read_response_format();
    read_structured_outputs();
    read_guided();
    json(fields_, "json_schema");
    text(fields_, "grammar", Kind::grammar);
    text(fields_, "regex", Kind::regex);
    text(fields_, "ebnf", Kind::grammar);
    if (!generation_.constraint) return;
    if (generation_.params.min_tokens > 0) refuse_beside("min_tokens");
    if (generation_.params.ignore_eos) refuse_beside("ignore_eos");
  }

 private:
  void read_response_format() {
    fields_.members("response_format", [this](Fields& members) {
      const auto type = members.choice("type", {"text", "json_object", "json_schema", "structural_tag"});
      const bool all = members.describing();
      if (!type && !members.failed()) missing(members, "type");
      if (type == "json_object" || all) {
        if (!json(members, "schema") && !all) add(members, "type", {.kind = Kind::json_object});
      }
      if (type == "json_schema" || all) read_json_schema(members);
      if (type == "structural_tag" || all) {
        const Json* format = fields_.object("response_format");
        if (!all) add(members, "type", {.kind = Kind::structural_tag, .text = format->dump()});
        members.ignore(Fields::Kind::any, {"format", "structures", "triggers"});
      }
    });
  }

  /// OpenAI's object with a name around the schema.
  void read_json_schema(Fields& format) {
    const bool found = format.members("json_schema", [this](Fields& members) { read_named_schema(members); });
    if (!found && !format.failed() && !format.describing()) missing(format, "json_schema");
  }

  void read_named_schema(Fields& members) {
    const auto name = members.string("name");
    const bool plain = name && !name->empty() && name->size() <= kLongestName &&
                       std::all_of(name->begin(), name->end(),
                                   [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
    if (!name && !members.failed()) missing(members, "name");
    if (name && !plain) {
      members.invalid("name", "invalid_value",
                      "Invalid 'response_format.json_schema.name': it has 1 to 64 letters, digits, '_' or '-'.");
    }
    const bool strict = members.boolean("strict").value_or(false);
    members.ignore(Fields::Kind::string, {"description"});
    if (!json(members, "schema", strict) && !members.failed()) missing(members, "schema");
  }

  void read_structured_outputs() {
    fields_.members("structured_outputs", [this](Fields& members) { read_members_of_outputs(members); });
  }

  void read_members_of_outputs(Fields& members) {
    json(members, "json");
    text(members, "regex", Kind::regex);
    choices(members, "choice");
    text(members, "grammar", Kind::grammar);
    json_object(members, "json_object");
    structural_tag(members);
    const bool compact = members.boolean("disable_any_whitespace").value_or(false);
    members.ignore(Fields::Kind::boolean, {"disable_additional_properties", "disable_fallback"});
    members.ignore(Fields::Kind::string, {"backend", "_backend"});
    members.refuse({"whitespace_pattern"});
    const bool found = generation_.constraint_param.starts_with("structured_outputs.");
    if (found) generation_.constraint->compact = compact;
    if (!found && !members.failed()) {
      fields_.invalid("structured_outputs", "invalid_value",
                      "Invalid 'structured_outputs': it needs one of json, regex, choice, grammar, json_object and "
                      "structural_tag.");
    }
  }

  /// The names before `structured_outputs`.
  void read_guided() {
    json(fields_, "guided_json");
    text(fields_, "guided_regex", Kind::regex);
    choices(fields_, "guided_choice");
    text(fields_, "guided_grammar", Kind::grammar);
    json_object(fields_, "guided_json_object");
    fields_.ignore(Fields::Kind::string, {"guided_decoding_backend"});
    fields_.refuse({"guided_whitespace_pattern"});
  }

  /// A schema as an object, or as text. True when there is one.
  bool json(Fields& fields, std::string_view name, bool strict = false) {
    using Field = Fields::Kind;
    const Json* schema = fields.one_of(name, {Field::object, Field::string, Field::boolean});
    if (schema == nullptr) return fields.failed();
    add(fields, name,
        {.kind = Kind::json_schema,
         .text = schema->is_string() ? schema->as_string() : schema->dump(),
         .strict = strict});
    return true;
  }

  void text(Fields& fields, std::string_view name, Kind kind) {
    if (const auto text = fields.string(name)) add(fields, name, {.kind = kind, .text = *text});
  }

  void choices(Fields& fields, std::string_view name) {
    const Json::Array* list = fields.array(name, kMostChoices);
    if (list == nullptr) return;
    ConstraintSpec spec{.kind = Kind::choice};
    for (const Json& item : *list) {
      if (!item.is_string()) return fields.wrong_kind(name, "strings", item);
      spec.choices.push_back(item.as_string());
    }
    add(fields, name, std::move(spec));
  }

  void json_object(Fields& fields, std::string_view name) {
    if (fields.boolean(name).value_or(false)) add(fields, name, {.kind = Kind::json_object});
  }

  void structural_tag(Fields& fields) {
    if (const Json* tag = fields.one_of("structural_tag", {Fields::Kind::object, Fields::Kind::string})) {
      add(fields, "structural_tag",
          {.kind = Kind::structural_tag, .text = tag->is_string() ? tag->as_string() : tag->dump()});
    }
  }

  void add(Fields& fields, std::string_view name, ConstraintSpec spec) {
    const std::string param = fields.full_name(name);
    if (generation_.constraint) {
      return fields.invalid(name, "invalid_value",
                            fmt::format("'{}' and '{}' cannot be combined: an answer has one constraint.",
                                        generation_.constraint_param, param));
    }
    generation_.constraint = std::move(spec);
    generation_.constraint_param = param;
  }

  void refuse_beside(std::string_view name) {
    fields_.invalid(name, "invalid_value",
                    fmt::format("'{}' cannot be combined with '{}', which decides where the answer ends.", name,
                                generation_.constraint_param));
  }

  static void missing(Fields& fields, std::string_view name) {
    fields.invalid(name, "missing_required_parameter",
                   fmt::format("Missing required parameter: '{}'.", fields.full_name(name)));
  }

  Fields& fields_;
  Generation& generation_;
};

}  // namespace

void read_constraint(Fields& fields, Generation& generation) { ConstraintReader(fields, generation).read(); }

}  // namespace quern
