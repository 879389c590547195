// Granite 3, Phi-4-mini, Firefunction, Nemotron Nano 2 and others: a marker, then [{"name": ..., "arguments": {...}},
// ...].
#include <algorithm>

#include "text/tool_calls/call_object.h"
#include "text/tool_calls/dialect.h"

namespace quern {
namespace {

int spoken_in(std::string_view chat_template) {
  return std::max({shown(chat_template, 30, {"<|tool_call|>"}), shown(chat_template, 30, {"functools["}),
                   shown(chat_template, 30, {"<TOOLCALL>["}), shown(chat_template, 30, {"<tool_calls>["})});
}

Reading<bool> read(ReplyReader& in, int start) {
  if (start == 4) co_return co_await read_call_object(in, CallNames::known, true);
  if (co_await in.skip_space() == '{') {
    if (!co_await read_call_object(in, CallNames::any)) co_return false;
  } else if (!co_await read_call_array(in, CallNames::any)) {
    co_return false;
  }
  for (const std::string_view end : {"</TOOLCALL>", "</tool_calls>"}) {
    if (co_await in.take(end)) break;
  }
  co_return true;
}

CallTags grammar(const CallGrammar& of) { return plain_objects(of, "arguments"); }

const KnownDialect known{{.name = "granite",
                          .more_names = {"phi4_mini_json", "nemotron_json"},
                          .spoken_in = spoken_in,
                          .markers = {"<|tool_call|>", "<TOOLCALL>", "</TOOLCALL>"},
                          .starts = {{"<|tool_call|>"}, {"<TOOLCALL>"}, {"<tool_calls>"}, {"functools"}, {"{", true}},
                          .read = read,
                          .grammar = grammar}};

}  // namespace
}  // namespace quern
