// Llama 3.1 to 3.3: {"name": ..., "parameters": {...}} without a marker or after <|python_tag|>; several with ';'
// between.
#include <algorithm>

#include "text/tool_calls/call_object.h"
#include "text/tool_calls/dialect.h"

namespace quern {
namespace {

constexpr std::string_view kPythonTag = "<|python_tag|>";

int spoken_in(std::string_view chat_template) {
  return shown(chat_template, 15, {"<|start_header_id|>", "\"parameters\": ", "ipython"});
}

Reading<bool> read(ReplyReader& in, int start) {
  bool opened = start == 1;
  const CallNames names = opened ? CallNames::known : CallNames::any;
  if (!opened) co_await in.skip_space();
  while (true) {
    if (!co_await read_call_object(in, names, opened)) co_return false;
    opened = false;
    if (co_await in.skip_space() != ';') co_return true;
    co_await in.next();
    co_await in.skip_space();
  }
}

/// <|python_tag|> may also begin code, so that it forces nothing.
CallTags grammar(const CallGrammar& of) {
  CallTags calls = plain_objects(of, "parameters");
  if (of.in_vocabulary(kPythonTag)) calls.before = of.part(kPythonTag);
  return calls;
}

const KnownDialect known{{.name = "llama3_json",
                          .more_names = {"llama4_json", "llama3"},
                          .spoken_in = spoken_in,
                          .markers = {kPythonTag},
                          .starts = {{kPythonTag}, {"{", true}},
                          .read = read,
                          .grammar = grammar}};

}  // namespace
}  // namespace quern
