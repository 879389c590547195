// Hermes, Qwen 2.5 and 3 and many others: <tool_call>{"name": ..., "arguments": {...}}</tool_call>.
#include <fmt/format.h>

#include "text/tool_calls/call_object.h"
#include "text/tool_calls/dialect.h"

namespace quern {
namespace {

int spoken_in(std::string_view chat_template) { return shown(chat_template, 20, {"<tool_call>"}); }

Reading<bool> read(ReplyReader& in, int) {
  const int32_t before = in.calls();
  for (int c = co_await in.skip_space(); c == '{' || c == '['; c = co_await in.skip_space()) {
    const bool good =
        c == '{' ? co_await read_call_object(in, CallNames::any) : co_await read_call_array(in, CallNames::any);
    if (!good) co_return false;
  }
  if (in.calls() == before) co_return false;
  co_await in.take("</tool_call>");
  co_return true;
}

CallTags grammar(const CallGrammar& of) {
  CallTags calls{{of.edge("<tool_call>")}, {}};
  for (const Tool& tool : of.tools()) {
    calls.tags.push_back(of.tag("<tool_call>", fmt::format("\n{{\"name\": \"{}\", \"arguments\": ", tool.name),
                                tags::json(CallGrammar::schema(tool)), "}\n", "</tool_call>"));
  }
  return calls;
}

const KnownDialect known{{.name = "hermes",
                          .more_names = {"qwen", "qwen25"},
                          .spoken_in = spoken_in,
                          .markers = {"<tool_call>", "</tool_call>"},
                          .starts = {{"<tool_call>"}},
                          .read = read,
                          .grammar = grammar}};

}  // namespace
}  // namespace quern
