// Answers of OpenAI's Responses.
#include "server/openapi/answers.h"
#include "server/openapi/shapes.h"

namespace quern {
namespace {

using namespace shapes;  // NOLINT: this file is made of these words

Json logprobs() {
  const Json one = object({{"token", text()}, {"logprob", number()}, {"bytes", list(count())}});
  return list(with(one, {{"top_logprobs", list(one)}}));
}

Json part() {
  Json said = object({{"type", word("output_text")},
                      {"text", text()},
                      {"annotations", list(kind("object"))},
                      {"logprobs", logprobs()}});
  return any_of({std::move(said), object({{"type", word("reasoning_text")}, {"text", text()}})});
}

Json item() {
  const Json status = words({"in_progress", "completed", "incomplete"});
  Json message = object({{"id", text()},
                         {"type", word("message")},
                         {"status", status},
                         {"role", word("assistant")},
                         {"content", list(part())}});
  Json reasoning = object({{"id", text()},
                           {"type", word("reasoning")},
                           {"status", status},
                           {"summary", list(kind("object"))},
                           {"content", list(part())},
                           {"encrypted_content", null()}});
  Json call = object({{"id", text()},
                      {"type", word("function_call")},
                      {"status", status},
                      {"call_id", text()},
                      {"name", text()},
                      {"arguments", text()}});
  return any_of({std::move(message), std::move(reasoning), std::move(call)});
}

Json usage() {
  return object({{"input_tokens", count()},
                 {"input_tokens_details", object({{"cached_tokens", count()}, {"cache_write_tokens", count()}})},
                 {"output_tokens", count()},
                 {"output_tokens_details", object({{"reasoning_tokens", count()}})},
                 {"total_tokens", count()}});
}

/// What was asked for, as the answer says it again.
Json with_request(Json response) {
  Json tool = object({{"type", word("function")},
                      {"name", text()},
                      {"description", or_null(text())},
                      {"parameters", or_null(kind("object"))},
                      {"strict", or_null(boolean())}});
  Json reasoning = object({{"effort", or_null(text())}, {"summary", or_null(text())}});
  return with(std::move(response), {{"instructions", or_null(text())},
                                    {"previous_response_id", or_null(text())},
                                    {"store", boolean()},
                                    {"max_output_tokens", or_null(count())},
                                    {"max_tool_calls", or_null(count())},
                                    {"text", object({{"format", kind("object")}})},
                                    {"reasoning", or_null(std::move(reasoning))},
                                    {"tools", list(std::move(tool))},
                                    {"tool_choice", any_of({text(), kind("object")})},
                                    {"parallel_tool_calls", boolean()},
                                    {"top_logprobs", count()},
                                    {"metadata", map(text())},
                                    {"prompt_cache_key", or_null(text())},
                                    {"safety_identifier", or_null(text())},
                                    {"user", or_null(text())},
                                    {"service_tier", text()},
                                    {"background", boolean()},
                                    {"truncation", text()},
                                    {"temperature", number()},
                                    {"top_p", number()},
                                    {"presence_penalty", number()},
                                    {"frequency_penalty", number()}});
}

Json event(std::string_view type, Members members) {
  return with(object({{"type", word(type)}, {"sequence_number", count()}}), members);
}

/// An event within an item, or within a part of one.
Json item_event(std::string_view type, bool in_part, Members members) {
  Json event_in_item = with(event(type, {{"item_id", text()}, {"output_index", count()}}), members);
  return in_part ? with(std::move(event_in_item), {{"content_index", count()}}) : event_in_item;
}

}  // namespace

Json response_answer() {
  return with_request(object({{"id", text()},
                              {"object", word("response")},
                              {"created_at", count()},
                              {"completed_at", or_null(count())},
                              {"status", words({"in_progress", "completed", "incomplete", "failed"})},
                              {"error", or_null(object({{"code", text()}, {"message", text()}}))},
                              {"incomplete_details", or_null(object({{"reason", word("max_output_tokens")}}))},
                              {"model", text()},
                              {"output", list(item())},
                              {"usage", or_null(usage())}}));
}

Json response_events() {
  const Json whole = shared("Response");
  Json error = object({{"message", text()}, {"type", text()}, {"param", or_null(text())}, {"code", or_null(text())}});
  const auto item_of = [](std::string_view type) { return event(type, {{"output_index", count()}, {"item", item()}}); };
  return any_of(
             {event("response.created", {{"response", whole}}), event("response.in_progress", {{"response", whole}}),
              event("response.completed", {{"response", whole}}), event("response.incomplete", {{"response", whole}}),
              event("response.failed", {{"response", whole}}), item_of("response.output_item.added"),
              item_of("response.output_item.done"), item_event("response.content_part.added", true, {{"part", part()}}),
              item_event("response.content_part.done", true, {{"part", part()}}),
              item_event("response.output_text.delta", true, {{"delta", text()}, {"logprobs", logprobs()}}),
              item_event("response.output_text.done", true, {{"text", text()}, {"logprobs", logprobs()}}),
              item_event("response.reasoning_text.delta", true, {{"delta", text()}}),
              item_event("response.reasoning_text.done", true, {{"text", text()}}),
              item_event("response.function_call_arguments.delta", false, {{"delta", text()}}),
              item_event("response.function_call_arguments.done", false, {{"name", text()}, {"arguments", text()}}),
              event("error",
                    {{"code", text()}, {"message", text()}, {"param", or_null(text())}, {"error", std::move(error)}})})
      .set("description", "The data of each event, whose name is its type; [DONE] is that of the last one");
}

}  // namespace quern
