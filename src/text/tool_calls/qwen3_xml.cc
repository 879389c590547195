// Qwen3-Coder, Qwen 3.5, Nemotron 3, Step 3.5:
// <tool_call><function=NAME><parameter=K>V</parameter>...</function></tool_call>, values without types. Seed-OSS has
// the same in a tag of its own.
#include <fmt/format.h>

#include "text/tool_calls/call_object.h"
#include "text/tool_calls/dialect.h"
#include "text/tool_calls/untyped.h"

namespace quern {
namespace {

int qwen_spoken_in(std::string_view chat_template) {
  return shown(chat_template, 40, {"<tool_call>", "<function=", "<parameter="});
}
int seed_spoken_in(std::string_view chat_template) { return shown(chat_template, 50, {"<seed:tool_call>"}); }

/// After "<function=". `padded`: a value has a line break of its own on both sides.
Reading<bool> read_function(ReplyReader& in, bool padded) {
  const std::string name = co_await read_name(in);
  if (name.empty() || !co_await in.take(">")) co_return false;
  in.begin_call(name);
  UntypedArguments arguments(in, name);
  std::vector<Sought> ends = {{"</parameter>"}};
  if (padded) ends.push_back({"\n</parameter>"});
  while (true) {
    co_await in.skip_space();
    if (co_await in.take("</function>")) break;
    std::string key;
    if (!co_await in.take("<parameter=") || co_await in.text_until(">", key) < 0) co_return false;
    if (padded) co_await in.take("\n");
    if (!co_await arguments.read(std::move(key), ends)) co_return false;
  }
  arguments.end();
  co_return true;
}

Reading<bool> read_frame(ReplyReader& in, std::string_view end, bool padded) {
  const int32_t before = in.calls();
  while (true) {
    co_await in.skip_space();
    if (!co_await in.take("<function=")) break;
    if (!co_await read_function(in, padded)) co_return false;
  }
  if (in.calls() == before) co_return false;
  co_await in.take(end);
  co_return true;
}

/// Models that forget the frame, or answer in JSON, are understood too.
Reading<bool> read_qwen(ReplyReader& in, int start) {
  if (start == 1 && !co_await read_function(in, true)) co_return false;
  if (start == 1) {
    co_await in.skip_space();
    co_await in.take("</tool_call>");
    co_return true;
  }
  if (co_await in.skip_space() != '{') co_return co_await read_frame(in, "</tool_call>", true);
  if (!co_await read_call_object(in, CallNames::any)) co_return false;
  co_await in.skip_space();
  co_await in.take("</tool_call>");
  co_return true;
}

Reading<bool> read_seed(ReplyReader& in, int) { co_return co_await read_frame(in, "</seed:tool_call>", false); }

CallTags grammar_in(const CallGrammar& of, std::string_view begin, std::string_view end) {
  CallTags calls{{of.edge(begin)}, {}};
  for (const Tool& tool : of.tools()) {
    calls.tags.push_back(of.tag(begin, fmt::format("\n<function={}>\n", tool.name),
                                tags::json(CallGrammar::schema(tool), "qwen_xml"), "\n</function>\n", end));
  }
  return calls;
}

CallTags qwen_grammar(const CallGrammar& of) { return grammar_in(of, "<tool_call>", "</tool_call>"); }
CallTags seed_grammar(const CallGrammar& of) { return grammar_in(of, "<seed:tool_call>", "</seed:tool_call>"); }

const KnownDialect qwen{{.name = "qwen3_coder",
                         .more_names = {"qwen3_xml", "nemotron_v3", "step3p5"},
                         .spoken_in = qwen_spoken_in,
                         .markers = {"<tool_call>", "</tool_call>"},
                         .starts = {{"<tool_call>"}, {"<function="}},
                         .read = read_qwen,
                         .grammar = qwen_grammar}};
const KnownDialect seed{{.name = "seed_oss",
                         .spoken_in = seed_spoken_in,
                         .markers = {"<seed:tool_call>", "</seed:tool_call>"},
                         .starts = {{"<seed:tool_call>"}},
                         .read = read_seed,
                         .grammar = seed_grammar}};

}  // namespace
}  // namespace quern
