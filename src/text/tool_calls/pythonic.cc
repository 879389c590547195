// Calls as Python writes them: [f(a=1, b="x"), g()], bare (Llama 3.2) or between markers (Llama 4, LFM2).
#include <algorithm>
#include <fmt/format.h>

#include "text/tool_calls/call_object.h"
#include "text/tool_calls/dialect.h"
#include "text/tool_calls/python_grammar.h"

namespace quern {
namespace {

constexpr int kMaxDepth = 32;

int spoken_in(std::string_view chat_template) {
  return std::max({shown(chat_template, 30, {"<|python_start|>"}), shown(chat_template, 30, {"<|tool_call_start|>"}),
                   shown(chat_template, 30, {"<|tool_list_start|>"}), shown(chat_template, 25, {"func_name1("})});
}

void append_code_point(std::string& out, uint32_t code) {
  const auto byte = [&](uint32_t value) { out += static_cast<char>(value); };
  if (code < 0x80) return byte(code);
  if (code < 0x800) {
    byte(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    byte(0xE0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3F));
  } else {
    byte(0xF0 | (code >> 18 & 0x07));
    byte(0x80 | (code >> 12 & 0x3F));
    byte(0x80 | (code >> 6 & 0x3F));
  }
  byte(0x80 | (code & 0x3F));
}

/// `digits` hexadecimal ones, as a character.
Reading<bool> read_code_point(ReplyReader& in, int digits, std::string& out) {
  uint32_t code = 0;
  for (int i = 0; i < digits; ++i) {
    const int c = co_await in.next();
    const int lower = c | 0x20;
    const bool letter = lower >= 'a' && lower <= 'f';
    if (!letter && (c < '0' || c > '9')) co_return false;
    code = code * 16 + static_cast<uint32_t>(letter ? lower - 'a' + 10 : c - '0');
  }
  if (code > 0x10FFFF) co_return false;
  append_code_point(out, code);
  co_return true;
}

/// What follows a backslash.
Reading<bool> read_escape(ReplyReader& in, std::string& out) {
  const int c = co_await in.next();
  if (c < 0) co_return false;
  switch (c) {
    case 'n': out += '\n'; break;
    case 't': out += '\t'; break;
    case 'r': out += '\r'; break;
    case 'a': out += '\a'; break;
    case 'b': out += '\b'; break;
    case 'f': out += '\f'; break;
    case 'v': out += '\v'; break;
    case '\n': break;
    case '\\':
    case '\'':
    case '"': out += static_cast<char>(c); break;
    case 'x': co_return co_await read_code_point(in, 2, out);
    case 'u': co_return co_await read_code_point(in, 4, out);
    case 'U': co_return co_await read_code_point(in, 8, out);
    default: out += '\\'; out += static_cast<char>(c);
  }
  co_return true;
}

Reading<bool> read_string(ReplyReader& in, std::string& json) {
  const int quote = co_await in.next();
  std::string text;
  for (int c = co_await in.next(); c != quote; c = co_await in.next()) {
    if (c < 0) co_return false;
    if (c != '\\') {
      text += static_cast<char>(c);
    } else if (!co_await read_escape(in, text)) {
      co_return false;
    }
  }
  append_json_string(json, text);
  co_return true;
}

/// A number, or True, False, None and their JSON spellings.
Reading<bool> read_word(ReplyReader& in, std::string& json) {
  std::string word;
  if (co_await in.take("-")) word = "-";
  word += co_await read_name(in);
  if (co_await in.take("+")) word += "+" + co_await read_name(in);  // 1e+5
  if (word == "True") word = "true";
  if (word == "False") word = "false";
  if (word == "None") word = "null";
  const auto value = Json::parse(word);
  if (!value.ok()) co_return false;
  json += word;
  co_return true;
}

Reading<bool> read_literal(ReplyReader& in, std::string& json, int depth);

/// A list, tuple or dictionary.
Reading<bool> read_container(ReplyReader& in, std::string& json, int depth) {
  const int open = co_await in.next();
  const int close = open == '(' ? ')' : open == '[' ? ']' : '}';
  json += open == '{' ? '{' : '[';
  bool first = true;
  while (co_await in.skip_space() != close) {
    if (!first) {
      if (!co_await in.take(",")) co_return false;
      if (co_await in.skip_space() == close) break;
      json += ", ";
    }
    first = false;
    if (open == '{') {
      const int quote = co_await in.peek();
      if ((quote != '"' && quote != '\'') || !co_await read_string(in, json)) co_return false;
      co_await in.skip_space();
      if (!co_await in.take(":")) co_return false;
      json += ": ";
    }
    if (!co_await read_literal(in, json, depth + 1)) co_return false;
  }
  co_await in.next();
  json += open == '{' ? '}' : ']';
  co_return true;
}

Reading<bool> read_literal(ReplyReader& in, std::string& json, int depth) {
  const int c = co_await in.skip_space();
  if (c == '"' || c == '\'') co_return co_await read_string(in, json);
  if (c != '[' && c != '(' && c != '{') co_return co_await read_word(in, json);
  if (depth >= kMaxDepth) co_return false;
  co_return co_await read_container(in, json, depth);
}

/// name(key=value, ...)
Reading<bool> read_call(ReplyReader& in, CallNames names) {
  co_await in.skip_space();
  std::string name = co_await read_name(in);
  if (name.empty() || (names == CallNames::known && find_tool(in.tools(), name) == nullptr)) co_return false;
  if (!co_await in.take("(")) co_return false;
  std::string json = "{";
  while (co_await in.skip_space() != ')') {
    if (json.size() > 1) {
      if (!co_await in.take(",")) co_return false;
      if (co_await in.skip_space() == ')') break;
      json += ", ";
    }
    const std::string key = co_await read_name(in);
    co_await in.skip_space();
    if (key.empty() || !co_await in.take("=")) co_return false;
    append_json_string(json, key);
    json += ": ";
    if (!co_await read_literal(in, json, 0)) co_return false;
  }
  co_await in.next();
  in.call(std::move(name), json + "}");
  co_return true;
}

Reading<bool> read(ReplyReader& in, int start) {
  if (start == 3) co_return co_await read_call_object(in, CallNames::known, true);
  if (start > 0) {
    co_await in.skip_space();
    if (!co_await in.take("[")) co_return false;
  }
  const CallNames names = start == 0 ? CallNames::known : CallNames::any;
  while (true) {
    if (!co_await read_call(in, names)) co_return false;
    const int after = co_await in.skip_space();
    if (after != ',' && after != ']') co_return after < 0;
    co_await in.next();
    if (after == ']') break;
  }
  for (const std::string_view end : {"<|python_end|>", "<|tool_call_end|>"}) {
    if (co_await in.take(end)) break;
  }
  co_return true;
}

struct Frame {
  std::string_view begin;
  std::string_view end;
};
constexpr Frame kFrames[] = {{"<|python_start|>", "<|python_end|>"}, {"<|tool_call_start|>", "<|tool_call_end|>"}};

/// Whether the arguments of all tools have names that read_call() takes.
bool has_python_names(const CallGrammar& of) {
  return std::ranges::all_of(of.tools(), [](const Tool& tool) {
    const Json schema = CallGrammar::schema(tool);
    const Json* properties = schema.find("properties");
    if (properties == nullptr || !properties->is_object()) return true;
    return std::ranges::all_of(properties->members(), [](const auto& member) {
      return std::ranges::all_of(member.first, [](unsigned char c) { return in_name(c); });
    });
  });
}

/// Between the markers that are tokens of the vocabulary, if there are any. Else a bracket before the name of a tool
/// begins a list, of which the first call is watched: a name after a comma may be any text. Objects can have arguments
/// of any name; they are forced, but not watched.
CallTags grammar(const CallGrammar& of) {
  if (!has_python_names(of)) return {.forced = plain_objects(of, "arguments").forced, .complete = false};
  CallTags calls;
  calls.complete = false;
  Json::Array each;
  for (const Tool& tool : of.tools()) {
    const Json arguments = tags::grammar(python_arguments(CallGrammar::schema(tool)));
    each.push_back(of.tag("", tool.name + "(", arguments, ")", ""));
    calls.triggers.emplace_back(fmt::format("[{}(", tool.name));
    calls.tags.push_back(of.tag("", fmt::format("[{}(", tool.name), arguments, ")", ""));
  }
  const Json list = tags::separated(std::move(each), ", ", true, false);
  calls.forced.push_back(of.tag("", "[", list, "]", ""));
  Json::Array framed;
  std::vector<tags::Edge> begins;
  for (const Frame& frame : kFrames) {
    const tags::Edge begin = of.edge(frame.begin);
    if (!std::holds_alternative<int32_t>(begin)) continue;
    begins.push_back(begin);
    framed.push_back(of.tag(frame.begin, "[", list, "]", frame.end));
  }
  if (begins.empty()) return calls;
  return {.triggers = std::move(begins), .tags = std::move(framed), .complete = false};
}

const KnownDialect known{{.name = "pythonic",
                          .more_names = {"llama4_pythonic", "lfm2"},
                          .spoken_in = spoken_in,
                          .markers = {"<|python_start|>", "<|python_end|>", "<|tool_call_start|>", "<|tool_call_end|>"},
                          .starts = {{"[", true}, {"<|python_start|>"}, {"<|tool_call_start|>"}, {"{", true}},
                          .read = read,
                          .grammar = grammar}};

}  // namespace
}  // namespace quern
