// DeepSeek V3 and R1: in a frame for all calls, `function SEP NAME` and the arguments in a fence of Markdown for each.
// V3.1 has `NAME SEP {...}` in the same frame.
#include "text/tool_calls/call_object.h"
#include "text/tool_calls/dialect.h"

namespace quern {
namespace {

constexpr std::string_view kAllBegin = "<｜tool▁calls▁begin｜>";
constexpr std::string_view kAllEnd = "<｜tool▁calls▁end｜>";
constexpr std::string_view kBegin = "<｜tool▁call▁begin｜>";
constexpr std::string_view kEnd = "<｜tool▁call▁end｜>";
constexpr std::string_view kSeparator = "<｜tool▁sep｜>";

int v3_spoken_in(std::string_view chat_template) { return shown(chat_template, 40, {kAllBegin, "```json"}); }
int v31_spoken_in(std::string_view chat_template) { return shown(chat_template, 30, {kAllBegin}); }

/// After kBegin. Both spellings are understood.
Reading<bool> read_call(ReplyReader& in) {
  std::string name = co_await read_name(in);
  if (!co_await in.take(kSeparator)) co_return false;
  const bool fenced = co_await in.skip_space() != '{';
  if (fenced) {
    name = co_await read_name(in);
    co_await in.skip_space();
    if (!co_await in.take("```json")) co_return false;
  }
  if (name.empty()) co_return false;
  in.begin_call(std::move(name));
  if (!co_await read_arguments(in)) co_return false;
  co_await in.skip_space();
  if (fenced && co_await in.take("```")) co_await in.skip_space();
  in.end_call();
  co_await in.take(kEnd);
  co_return true;
}

Reading<bool> read(ReplyReader& in, int start) {
  bool opened = start == 1;
  const int32_t before = in.calls();
  while (true) {
    co_await in.skip_space();
    if (!opened && !co_await in.take(kBegin)) break;
    opened = false;
    if (!co_await read_call(in)) co_return false;
  }
  if (in.calls() == before) co_return false;
  co_await in.take(kAllEnd);
  co_return true;
}

CallTags framed(const CallGrammar& of, Json::Array each, std::string_view between) {
  CallTags calls{{of.edge(kAllBegin)}, {}};
  calls.tags.push_back(of.tag(kAllBegin, "", tags::separated(std::move(each), between, true, false), "", kAllEnd));
  return calls;
}

CallTags v3_grammar(const CallGrammar& of) {
  Json::Array each;
  for (const Tool& tool : of.tools()) {
    Json call =
        tags::sequence({tags::literal("function"), of.part(kSeparator), tags::literal(tool.name + "\n```json\n"),
                        tags::json(CallGrammar::schema(tool)), tags::literal("\n```")});
    each.push_back(of.tag(kBegin, "", std::move(call), "", kEnd));
  }
  return framed(of, std::move(each), "\n");
}

CallTags v31_grammar(const CallGrammar& of) {
  Json::Array each;
  for (const Tool& tool : of.tools()) {
    Json call = tags::sequence({of.part(kSeparator), tags::json(CallGrammar::schema(tool))});
    each.push_back(of.tag(kBegin, tool.name, std::move(call), "", kEnd));
  }
  return framed(of, std::move(each), "");
}

const std::vector<std::string_view> kMarkers = {kAllBegin, kAllEnd, kBegin, kEnd, kSeparator};

const KnownDialect v3{{.name = "deepseek_v3",
                       .spoken_in = v3_spoken_in,
                       .markers = kMarkers,
                       .starts = {{kAllBegin}, {kBegin}},
                       .read = read,
                       .grammar = v3_grammar}};
const KnownDialect v31{{.name = "deepseek_v31",
                        .spoken_in = v31_spoken_in,
                        .markers = kMarkers,
                        .starts = {{kAllBegin}, {kBegin}},
                        .read = read,
                        .grammar = v31_grammar}};

}  // namespace
}  // namespace quern
