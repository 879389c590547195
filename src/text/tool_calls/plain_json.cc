// No marker at all: an object that names a tool, or an array of such, on a line of its own or in a fence of Markdown.
// For models whose chat template shows no other dialect.
#include "text/tool_calls/call_object.h"
#include "text/tool_calls/dialect.h"

namespace quern {
namespace {

Reading<bool> read(ReplyReader& in, int start) {
  if (start < 2) {
    co_return start == 0 ? co_await read_call_object(in, CallNames::known, true)
                         : co_await read_call_array(in, CallNames::known, true);
  }
  const bool several = co_await in.skip_space() == '[';
  const bool good =
      several ? co_await read_call_array(in, CallNames::known) : co_await read_call_object(in, CallNames::known);
  if (!good) co_return false;
  co_await in.skip_space();
  co_await in.take("```");
  co_return true;
}

CallTags grammar(const CallGrammar& of) { return plain_objects(of, "arguments"); }

const KnownDialect known{
    {.name = "json", .starts = {{"{", true}, {"[", true}, {"```json", true}}, .read = read, .grammar = grammar}};

}  // namespace
}  // namespace quern
