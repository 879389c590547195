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

struct Frame {
  std::string_view begin;
  std::string_view end;
};
constexpr Frame kFrames[] = {
    {"<|tool_call|>", ""}, {"<TOOLCALL>", "</TOOLCALL>"}, {"<tool_calls>", "</tool_calls>"}, {"functools", ""}};

/// In the frames that are tokens of the vocabulary, if there are any, since only the model's own can be.
CallTags grammar(const CallGrammar& of) {
  CallTags calls;
  calls.complete = false;
  const auto is_token = [&](const Frame& frame) { return std::holds_alternative<int32_t>(of.edge(frame.begin)); };
  const bool tokens = std::ranges::any_of(kFrames, is_token);
  for (const Frame& frame : kFrames) {
    if (is_token(frame) != tokens) continue;
    calls.tags.push_back(of.tag(frame.begin, "[", object_list(of), "]", frame.end));
    calls.triggers.push_back(tokens ? of.edge(frame.begin) : tags::Edge(std::string(frame.begin) + "["));
  }
  calls.forced = plain_objects(of, "arguments").forced;
  return calls;
}

const KnownDialect known{{.name = "granite",
                          .more_names = {"phi4_mini_json", "nemotron_json"},
                          .spoken_in = spoken_in,
                          .markers = {"<|tool_call|>", "<TOOLCALL>", "</TOOLCALL>"},
                          .starts = {{"<|tool_call|>"}, {"<TOOLCALL>"}, {"<tool_calls>"}, {"functools"}, {"{", true}},
                          .read = read,
                          .grammar = grammar}};

}  // namespace
}  // namespace quern
