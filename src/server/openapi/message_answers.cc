// Answers of Anthropic's Messages.
#include "server/openapi/answers.h"
#include "server/openapi/shapes.h"

namespace quern {
namespace {

using namespace shapes;  // NOLINT: this file is made of these words

Json block() {
  return any_of({object({{"type", word("text")}, {"text", text()}}),
                 object({{"type", word("thinking")}, {"thinking", text()}, {"signature", text()}}),
                 object({{"type", word("tool_use")}, {"id", text()}, {"name", text()}, {"input", kind("object")}})});
}

Json usage() {
  return object({{"input_tokens", count()},
                 {"output_tokens", count()},
                 {"cache_creation_input_tokens", count()},
                 {"cache_read_input_tokens", count()}});
}

Json stop_reason() { return or_null(words({"end_turn", "max_tokens", "stop_sequence", "tool_use"})); }

Json delta() {
  return any_of({object({{"type", word("text_delta")}, {"text", text()}}),
                 object({{"type", word("thinking_delta")}, {"thinking", text()}}),
                 object({{"type", word("signature_delta")}, {"signature", text()}}),
                 object({{"type", word("input_json_delta")}, {"partial_json", text()}})});
}

Json event(std::string_view type, Members members) { return with(object({{"type", word(type)}}), members); }

}  // namespace

Json message_answer() {
  return object({{"id", text()},
                 {"type", word("message")},
                 {"role", word("assistant")},
                 {"model", text()},
                 {"content", list(block())},
                 {"stop_reason", stop_reason()},
                 {"stop_sequence", or_null(text())},
                 {"usage", usage()}});
}

Json message_events() {
  Json stop = object({{"stop_reason", stop_reason()}, {"stop_sequence", or_null(text())}});
  return any_of({event("message_start", {{"message", message_answer()}}),
                 event("content_block_start", {{"index", count()}, {"content_block", block()}}),
                 event("content_block_delta", {{"index", count()}, {"delta", delta()}}),
                 event("content_block_stop", {{"index", count()}}),
                 event("message_delta", {{"delta", std::move(stop)}, {"usage", usage()}}), event("message_stop", {}),
                 event("error", {{"error", object({{"type", text()}, {"message", text()}})}})})
      .set("description", "The data of each event, whose name is its type");
}

}  // namespace quern
