#include "text/reply/call_grammar.h"

#include <fmt/format.h>
#include <span>

#include "text/reply/reply.h"
#include "text/reply/reply_format.h"

namespace quern {
namespace {

constexpr size_t kManyTools = 24;  // from here on a grammar is too large for layouts that take several lines
constexpr std::string_view kSomeSpace = "[ \\n]{0,3}";

/// The reasoning that may, or when the prompt has opened it must, come before.
Json after_reasoning(const CallGrammar& grammar, const Thinking& thinking, bool opened, Json calls) {
  const tags::Edge begin = opened ? tags::Edge(std::string()) : grammar.edge(thinking.begin);
  Json thoughts = tags::tag(begin, tags::any_text(), grammar.edge(thinking.end));
  if (opened) return tags::sequence({std::move(thoughts), tags::regex(kSomeSpace), std::move(calls)});
  thoughts = tags::sequence({tags::regex(kSomeSpace), std::move(thoughts), tags::regex(kSomeSpace)});
  return tags::sequence({tags::optional(std::move(thoughts)), std::move(calls)});
}

Json part_of(const ConstraintSpec& constraint) {
  using Kind = ConstraintSpec::Kind;
  switch (constraint.kind) {
    case Kind::json_object: return tags::json(Json().set("type", "object"));
    case Kind::json_schema: {
      auto schema = Json::parse(constraint.text);
      return schema.ok() ? tags::json(std::move(schema).value()) : Json();
    }
    case Kind::regex: return constraint.text.empty() ? Json() : tags::regex(constraint.text);
    case Kind::choice: {
      Json::Array all;
      for (const std::string& one : constraint.choices) all.push_back(tags::literal(one));
      return tags::either(std::move(all));
    }
    case Kind::grammar:
    case Kind::structural_tag: return {};
  }
  return {};
}

}  // namespace

tags::Edge CallGrammar::edge(std::string_view marker) const {
  const auto id = tokenizer_.id_of(marker);
  if (id && tokenizer_.is_special(*id)) return *id;
  return std::string(marker);
}

Json CallGrammar::part(std::string_view marker) const {
  const tags::Edge found = edge(marker);
  if (const auto* id = std::get_if<int32_t>(&found)) return Json().set("type", "token").set("token", *id);
  return tags::literal(marker);
}

Json CallGrammar::schema(const Tool& tool) {
  if (tool.parameters.is_object() && !tool.parameters.members().empty()) return tool.parameters;
  return Json().set("type", "object").set("properties", Json::Object()).set("additionalProperties", false);
}

Json CallGrammar::tag(std::string_view begin, const std::string& before, Json arguments, const std::string& after,
                      std::string_view end) const {
  tags::Edge first = edge(begin);
  tags::Edge last = edge(end);
  Json::Array parts;
  if (auto* text = std::get_if<std::string>(&first)) {
    *text += before;
  } else if (!before.empty()) {
    parts.push_back(tags::literal(before));
  }
  parts.push_back(std::move(arguments));
  if (auto* text = std::get_if<std::string>(&last)) {
    text->insert(0, after);
  } else if (!after.empty()) {
    parts.push_back(tags::literal(after));
  }
  Json content = parts.size() == 1 ? std::move(parts[0]) : tags::sequence(std::move(parts));
  return tags::tag(first, std::move(content), last);
}

CallTags plain_objects(const CallGrammar& of, std::string_view key) {
  struct Layout {
    const char* begin;
    const char* end;
  };
  static constexpr Layout kLayouts[] = {{R"({{"name": "{}", "{}": )", "}"},
                                        {R"({{"name":"{}","{}":)", "}"},
                                        {"{{\n  \"name\": \"{}\",\n  \"{}\": ", "\n}"},
                                        {"{{\n    \"name\": \"{}\",\n    \"{}\": ", "\n}"}};
  CallTags calls;
  calls.complete = false;
  for (const Tool& tool : of.tools()) {
    const Json arguments = tags::json(CallGrammar::schema(tool));
    for (const Layout& layout : std::span(kLayouts).first(of.tools().size() > kManyTools ? 2 : 4)) {
      std::string begin = fmt::format(fmt::runtime(layout.begin), tool.name, key);
      calls.tags.push_back(of.tag("", begin, arguments, layout.end, ""));
      if (&layout == kLayouts) calls.forced.push_back(calls.tags.back());
      calls.triggers.emplace_back(std::move(begin));
    }
  }
  return calls;
}

Json object_list(const CallGrammar& of) {
  Json::Array objects;
  for (const Tool& tool : of.tools()) {
    objects.push_back(of.tag("", fmt::format(R"({{"name": "{}", "arguments": )", tool.name),
                             tags::json(CallGrammar::schema(tool)), "}", ""));
  }
  return tags::separated(std::move(objects), ", ", true, false);
}

std::optional<std::string> reasoned_grammar(const ReplyFormat& format, const Tokenizer& tokenizer, bool opened,
                                            const ConstraintSpec& constraint) {
  if (format.thinking() == nullptr) return std::nullopt;
  Json part = part_of(constraint);
  if (part.is_null()) return std::nullopt;
  const std::vector<Tool> none;
  const CallGrammar grammar(none, tokenizer);
  return tags::document(after_reasoning(grammar, *format.thinking(), opened, std::move(part)));
}

std::optional<ReplyGrammar> reply_grammar(const ReplyFormat& format, const Tokenizer& tokenizer,
                                          const ReplyOptions& options, bool forced) {
  const Dialect* dialect = format.dialect();
  if (dialect == nullptr || dialect->grammar == nullptr || options.tools.empty()) return std::nullopt;
  const CallGrammar grammar(options.tools, tokenizer);
  const CallTags calls = dialect->grammar(grammar);
  if (!forced && !calls.reply.is_null()) return ReplyGrammar{tags::document(calls.reply), calls.complete};
  Json reply;
  if (forced && !calls.forced.empty()) {
    reply = tags::separated(calls.forced, "\n", true, options.one_call);
  } else if (!calls.tags.empty() && !calls.triggers.empty()) {
    reply = tags::triggered(
        {.triggers = calls.triggers, .tags = calls.tags, .at_least_one = forced, .stop_after_first = options.one_call});
  } else {
    return std::nullopt;
  }
  if (format.thinking() != nullptr) {
    reply = after_reasoning(grammar, *format.thinking(), options.thinking, std::move(reply));
  }
  if (!calls.before.is_null()) reply = tags::sequence({tags::optional(calls.before), std::move(reply)});
  return ReplyGrammar{tags::document(std::move(reply)), forced || calls.complete};
}

}  // namespace quern
