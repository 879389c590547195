// GLM 4.5 to 4.7: <tool_call>NAME<arg_key>K</arg_key><arg_value>V</arg_value>...</tool_call>, values without types.
#include "text/tool_calls/call_object.h"
#include "text/tool_calls/dialect.h"
#include "text/tool_calls/untyped.h"

namespace quern {
namespace {

int spoken_in(std::string_view chat_template) { return shown(chat_template, 40, {"<tool_call>", "<arg_key>"}); }

Reading<bool> read(ReplyReader& in, int) {
  co_await in.skip_space();
  const std::string name = co_await read_name(in);
  co_await in.skip_space();
  if (name.empty()) co_return false;
  bool key = co_await in.take("<arg_key>");
  if (!key && !co_await in.take("</tool_call>")) co_return false;
  in.begin_call(name);
  UntypedArguments arguments(in, name);
  while (key) {
    std::string text;
    if (co_await in.text_until("</arg_key>", text) < 0) co_return false;
    co_await in.skip_space();
    if (!co_await in.take("<arg_value>")) co_return false;
    if (!co_await arguments.read(std::move(text), {{"</arg_value>"}})) co_return false;
    co_await in.skip_space();
    key = co_await in.take("<arg_key>");
    if (!key && !co_await in.take("</tool_call>")) co_return false;
  }
  arguments.end();
  co_return true;
}

/// A value may be anything between its marks, which only texts can end: none where they are special tokens.
CallTags grammar(const CallGrammar& of) {
  if (std::holds_alternative<int32_t>(of.edge("<arg_value>"))) return {};
  CallTags calls{{of.edge("<tool_call>")}, {}};
  for (const Tool& tool : of.tools()) {
    Json arguments = tags::sequence({tags::regex("\\n?"), tags::json(CallGrammar::schema(tool), "glm_xml")});
    calls.tags.push_back(of.tag("<tool_call>", tool.name, std::move(arguments), "", "</tool_call>"));
  }
  return calls;
}

const KnownDialect known{
    {.name = "glm45",
     .more_names = {"glm47"},
     .spoken_in = spoken_in,
     .markers = {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
     .starts = {{"<tool_call>"}},
     .read = read,
     .grammar = grammar}};

}  // namespace
}  // namespace quern
