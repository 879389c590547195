#include "server/anthropic/message_wire.h"

#include <fmt/format.h>
#include <iterator>

#include "base/json.h"

namespace quern {
namespace {

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

void event(std::string& out, std::string_view type, std::string_view more) {
  fmt::format_to(std::back_inserter(out), "event: {}\ndata: {{\"type\":\"{}\"{}{}}}\n\n", type, type,
                 more.empty() ? "" : ",", more);
}

/// "call_..." is the other protocol's.
std::string tool_id(std::string_view id) {
  return id.starts_with("call_") ? "toolu_" + std::string(id.substr(5)) : std::string(id);
}

/// `"stop_reason":...,"stop_sequence":...`
std::string stop_members(const AnswerEnd& end, bool called) {
  const std::string_view reason = std::string_view(end.reason) == "length" ? "max_tokens"
                                  : called                                 ? "tool_use"
                                  : end.stop_string                        ? "stop_sequence"
                                                                           : "end_turn";
  const bool named = end.stop_string && reason == "stop_sequence";
  return fmt::format(R"("stop_reason":"{}","stop_sequence":{})", reason, named ? quoted(*end.stop_string) : "null");
}

std::string usage_object(const Usage& usage) {
  return fmt::format(
      R"({{"input_tokens":{},"output_tokens":{},"cache_creation_input_tokens":0,"cache_read_input_tokens":0}})",
      usage.prompt_tokens, usage.completion_tokens);
}

std::string_view error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

}  // namespace

std::string message_error_body(const ApiError& error) {
  return fmt::format(R"({{"type":"error","error":{{"type":"{}","message":{}}}}})", error_type(error.status),
                     quoted(error.message));
}

MessageWire::MessageWire(const Generation& generation, std::string id)
    : model_(generation.model), id_("msg_" + std::move(id)) {}

std::string MessageWire::message(std::string_view content, const std::string& stop, const Usage& usage) const {
  return fmt::format(R"({{"id":{},"type":"message","role":"assistant","model":{},"content":[{}],{},"usage":{}}})",
                     quoted(id_), quoted(model_), content, stop, usage_object(usage));
}

void MessageWire::first_chunk(std::string& out, int32_t, const Prompt&, const std::vector<TokenLogprobs>&,
                              const Usage& usage) {
  event(out, "message_start", "\"message\":" + message("", R"("stop_reason":null,"stop_sequence":null)", usage));
}

void MessageWire::chunk(std::string& out, int32_t, const AnswerPiece& piece, const Usage&) {
  if (!piece.text.empty()) say(out, {ReplyPiece::Kind::content, -1, piece.text, {}});
  for (const ReplyPiece& one : piece.reply) say(out, one);
  if (piece.end) end_ = *piece.end;
}

void MessageWire::say(std::string& out, const ReplyPiece& piece) {
  switch (piece.kind) {
    case ReplyPiece::Kind::content:
      open(out, Block::text, nullptr);
      return delta(out, "text_delta", "text", piece.text);
    case ReplyPiece::Kind::reasoning:
      open(out, Block::thinking, nullptr);
      return delta(out, "thinking_delta", "thinking", piece.text);
    case ReplyPiece::Kind::call: return open(out, Block::tool, &piece);
    case ReplyPiece::Kind::arguments: return delta(out, "input_json_delta", "partial_json", piece.text);
  }
}

/// Goes on in a block of this kind; every call is one of its own.
void MessageWire::open(std::string& out, Block block, const ReplyPiece* call) {
  if (block_ == block && call == nullptr) return;
  close(out);
  block_ = block;
  called_ = called_ || call != nullptr;
  const std::string content = call != nullptr ? fmt::format(R"({{"type":"tool_use","id":{},"name":{},"input":{{}}}})",
                                                            quoted(tool_id(call->id)), quoted(call->text))
                              : block == Block::text ? R"({"type":"text","text":""})"
                                                     : R"({"type":"thinking","thinking":"","signature":""})";
  event(out, "content_block_start", fmt::format(R"("index":{},"content_block":{})", blocks_, content));
}

void MessageWire::close(std::string& out) {
  if (block_ == Block::none) return;
  if (block_ == Block::thinking) delta(out, "signature_delta", "signature", "");
  event(out, "content_block_stop", fmt::format(R"("index":{})", blocks_));
  ++blocks_;
  block_ = Block::none;
}

void MessageWire::delta(std::string& out, std::string_view type, std::string_view member, std::string_view text) const {
  event(out, "content_block_delta",
        fmt::format(R"("index":{},"delta":{{"type":"{}","{}":{}}})", blocks_, type, member, quoted(text)));
}

void MessageWire::finish(std::string& out, const Usage& usage) {
  close(out);
  event(out, "message_delta",
        fmt::format(R"("delta":{{{}}},"usage":{})", stop_members(end_, called_), usage_object(usage)));
  event(out, "message_stop", "");
}

void MessageWire::error(std::string& out, const ApiError& error) {
  out += "event: error\ndata: " + message_error_body(error) + "\n\n";
}

std::string MessageWire::whole(const std::vector<WholeChoice>& choices, const Usage& usage) {
  const WholeChoice& choice = choices.front();
  std::string content;
  const auto add = [&](const std::string& block) { content += (content.empty() ? "" : ",") + block; };
  if (!choice.reasoning.empty())
    add(fmt::format(R"({{"type":"thinking","thinking":{},"signature":""}})", quoted(choice.reasoning)));
  if (!choice.text.empty()) add(fmt::format(R"({{"type":"text","text":{}}})", quoted(choice.text)));
  for (const WholeChoice::Call& call : choice.calls) {
    const auto input = Json::parse(call.arguments);
    add(fmt::format(R"({{"type":"tool_use","id":{},"name":{},"input":{}}})", quoted(tool_id(call.id)),
                    quoted(call.name), input.ok() && input->is_object() ? input->dump() : "{}"));
  }
  return message(content, stop_members(choice.end, !choice.calls.empty()), usage);
}

}  // namespace quern
