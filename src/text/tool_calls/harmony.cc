// GPT-OSS: messages in channels. "analysis" is reasoning, "final" and "commentary" are content, and a message to
// functions.NAME is a call:  <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
#include <fmt/format.h>

#include "text/tool_calls/call_object.h"
#include "text/tool_calls/dialect.h"

namespace quern {
namespace {

constexpr std::string_view kFunctions = "functions.";

int spoken_in(std::string_view chat_template) {
  return shown(chat_template, 60, {"<|channel|>", "<|message|>", "<|start|>"});
}

struct Header {
  std::string channel;
  std::string to;
};

/// The word after `key`, up to a space or a marker.
std::string word_after(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + key.size());
  return std::string(text.substr(0, text.find_first_of(" <\xFF\n")));
}

std::vector<Sought> ends() { return {{"<|end|>"}, {"<|call|>"}, {"<|return|>"}, {"<|start|>"}}; }

Reading<bool> read_call(ReplyReader& in, std::string name) {
  in.begin_call(std::move(name));
  if (!co_await read_arguments(in)) co_return false;
  in.end_call();
  co_await in.skip_space();
  for (const Sought& end : ends()) {
    if (co_await in.take(end.text)) break;
  }
  co_return true;
}

Reading<bool> read_message(ReplyReader& in, bool reasoning) {
  if (reasoning) in.begin_reasoning();
  co_await in.until(ends(),
                    [&in, reasoning](std::string_view text) { reasoning ? in.reasoning(text) : in.content(text); });
  if (reasoning) in.end_reasoning();
  co_return true;
}

/// A function, when the message goes to one.
std::string function_of(const ReplyReader& in, const Header& header) {
  if (header.to.starts_with(kFunctions)) return header.to.substr(kFunctions.size());
  return find_tool(in.tools(), header.to) != nullptr ? header.to : std::string();
}

/// Up to and with <|message|>; false when it never comes.
Reading<bool> read_header(ReplyReader& in, Header& header) {
  std::string text;
  co_await in.take("assistant");
  co_await in.skip_space();
  if (co_await in.take("to=")) {
    text = "to=";
  } else if (co_await in.take("<|channel|>")) {
    text = "<|channel|>";
  } else {
    co_return false;
  }
  if (co_await in.text_until("<|message|>", text) < 0) co_return false;
  header.channel = word_after(text, "<|channel|>");
  header.to = word_after(text, "to=");
  co_return true;
}

/// The prompt ends with <|start|>assistant, so that a header comes first; text without one is content.
Reading<bool> read_reply(ReplyReader& in) {
  while (co_await in.peek() >= 0) {
    co_await in.take("<|start|>");
    in.begin_attempt({});
    Header header;
    bool good = co_await read_header(in, header);
    const std::string name = good && in.wants_calls() ? function_of(in, header) : std::string();
    if (!name.empty()) good = co_await read_call(in, name);
    good ? in.end_attempt() : in.abandon();
    if (good && !name.empty()) continue;
    co_await read_message(in, good && (header.channel == "analysis" || !header.to.empty()));
  }
  co_return true;
}

Json channel(const CallGrammar& of, std::string_view which) {
  return tags::sequence({of.part("<|channel|>"), tags::regex(which)});
}

/// A message that another one follows.
Json message(const CallGrammar& of, std::string_view channels) {
  return tags::sequence({channel(of, channels), tags::tag(of.edge("<|message|>"), tags::any_text(), of.edge("<|end|>")),
                         of.part("<|start|>"), tags::literal("assistant")});
}

/// A call; its receiver stands on either side of the channel.
Json call(const CallGrammar& of, const Tool& tool) {
  const Json to = tags::literal(fmt::format(" to=functions.{}", tool.name));
  const Json in = channel(of, "commentary|analysis");
  return tags::sequence({tags::either({tags::sequence({in, to}), tags::sequence({to, in})}), tags::regex(" ?"),
                         tags::optional(of.part("<|constrain|>")), tags::optional(tags::literal("json")),
                         of.part("<|message|>"), tags::json(CallGrammar::schema(tool))});
}

/// Forced: after some reasoning a call, which is the end of the reply. Else messages come first, as many as the model
/// likes, and an answer may be the last; that needs markers which no text can have.
CallTags grammar(const CallGrammar& of) {
  CallTags calls;
  Json::Array last;
  for (const Tool& tool : of.tools()) last.push_back(call(of, tool));
  calls.before = message(of, "analysis");
  for (const Json& one : last) calls.forced.push_back(tags::tag("", one, ""));
  if (!std::holds_alternative<int32_t>(of.edge("<|channel|>"))) return calls;
  last.push_back(tags::sequence({channel(of, "analysis|commentary|final"), of.part("<|message|>"), tags::any_text()}));
  calls.reply = tags::sequence({tags::star(message(of, "analysis|commentary|final")), tags::either(std::move(last))});
  return calls;
}

const KnownDialect known{
    {.name = "openai",
     .more_names = {"gpt_oss", "harmony", "gptoss"},
     .spoken_in = spoken_in,
     .markers = {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"},
     .read_reply = read_reply,
     .grammar = grammar}};

}  // namespace
}  // namespace quern
