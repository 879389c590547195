// Mistral: [TOOL_CALLS][{"name": ..., "arguments": {...}, "id": ...}, ...] until 2024, then for each call
// [TOOL_CALLS]NAME[ARGS]{...}, some with [CALL_ID]ID after the name, some without [ARGS].
#include <fmt/format.h>

#include "text/tool_calls/call_object.h"
#include "text/tool_calls/dialect.h"

namespace quern {
namespace {

int spoken_in(std::string_view chat_template) { return shown(chat_template, 30, {"[TOOL_CALLS]"}); }

Reading<bool> read(ReplyReader& in, int) {
  const int first = co_await in.skip_space();
  if (first == '[') co_return co_await read_call_array(in, CallNames::any);
  if (first == '{') co_return co_await read_call_object(in, CallNames::any);
  std::string name = co_await read_name(in);
  if (name.empty()) co_return false;
  std::string id;
  if (co_await in.take("[CALL_ID]")) id = co_await read_name(in);
  co_await in.take("[ARGS]");
  if (co_await in.skip_space() != '{') co_return false;
  in.begin_call(std::move(name), std::move(id));
  if (!co_await read_arguments(in)) co_return false;
  in.end_call();
  co_return true;
}

/// Either form: nothing but the model's training tells which one it has.
CallTags grammar(const CallGrammar& of) {
  CallTags calls{{of.edge("[TOOL_CALLS]")}, {}};
  const Json id_member = tags::optional(tags::regex(R"(, "id": "[0-9A-Za-z_-]{1,40}")"));
  Json::Array objects;
  for (const Tool& tool : of.tools()) {
    const Json arguments = tags::json(CallGrammar::schema(tool));
    objects.push_back(of.tag("", fmt::format("{{\"name\": \"{}\", \"arguments\": ", tool.name),
                             tags::sequence({arguments, id_member}), "}", ""));
    Json id = tags::sequence({of.part("[CALL_ID]"), tags::regex("[0-9A-Za-z_-]{1,40}")});
    calls.tags.push_back(of.tag("[TOOL_CALLS]", tool.name,
                                tags::sequence({tags::optional(std::move(id)), of.part("[ARGS]"), arguments}), "", ""));
  }
  calls.tags.push_back(of.tag("[TOOL_CALLS]", "[", tags::separated(std::move(objects), ", ", true, false), "]", ""));
  return calls;
}

const KnownDialect known{{.name = "mistral",
                          .spoken_in = spoken_in,
                          .markers = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
                          .starts = {{"[TOOL_CALLS]"}},
                          .read = read,
                          .ids = CallIds::nine,
                          .grammar = grammar}};

}  // namespace
}  // namespace quern
