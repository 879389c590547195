// Kimi K2: in a frame for all calls, functions.NAME:N and then the arguments for each.
#include <fmt/format.h>

#include "text/tool_calls/call_object.h"
#include "text/tool_calls/dialect.h"

namespace quern {
namespace {

constexpr std::string_view kAllBegin = "<|tool_calls_section_begin|>";
constexpr std::string_view kAllEnd = "<|tool_calls_section_end|>";
constexpr std::string_view kBegin = "<|tool_call_begin|>";
constexpr std::string_view kArguments = "<|tool_call_argument_begin|>";
constexpr std::string_view kEnd = "<|tool_call_end|>";

int spoken_in(std::string_view chat_template) { return shown(chat_template, 30, {kAllBegin}); }

/// "functions.NAME:N" -> "NAME".
std::string name_in(std::string_view id) {
  if (id.starts_with("functions.")) id.remove_prefix(10);
  return std::string(id.substr(0, id.rfind(':')));
}

Reading<bool> read(ReplyReader& in, int start) {
  bool opened = start == 1;
  const int32_t before = in.calls();
  while (true) {
    co_await in.skip_space();
    if (!opened && !co_await in.take(kBegin)) break;
    opened = false;
    co_await in.skip_space();
    std::string id = co_await read_name(in);
    co_await in.skip_space();
    if (id.empty() || !co_await in.take(kArguments)) co_return false;
    in.begin_call(name_in(id), id);
    if (!co_await read_arguments(in)) co_return false;
    in.end_call();
    co_await in.skip_space();
    co_await in.take(kEnd);
  }
  if (in.calls() == before) co_return false;
  co_await in.take(kAllEnd);
  co_return true;
}

CallTags grammar(const CallGrammar& of) {
  Json::Array each;
  for (const Tool& tool : of.tools()) {
    Json call = tags::sequence({tags::regex("[0-9]{1,4}"), of.part(kArguments), tags::json(CallGrammar::schema(tool))});
    each.push_back(of.tag(kBegin, fmt::format("functions.{}:", tool.name), std::move(call), "", kEnd));
  }
  CallTags calls{{of.edge(kAllBegin)}, {}};
  calls.tags.push_back(of.tag(kAllBegin, "", tags::separated(std::move(each), "", true, false), "", kAllEnd));
  return calls;
}

const KnownDialect known{{.name = "kimi_k2",
                          .spoken_in = spoken_in,
                          .markers = {kAllBegin, kAllEnd, kBegin, kArguments, kEnd},
                          .starts = {{kAllBegin}, {kBegin}},
                          .read = read,
                          .ids = CallIds::counted,
                          .grammar = grammar}};

}  // namespace
}  // namespace quern
