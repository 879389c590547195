#include "server/responses/response_wire.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <limits>
#include <utility>

#include "base/random.h"

namespace quern {
namespace {

constexpr double kLeastLogprob = -9999.0;

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

int64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

Json usage_object(const Usage& usage) {
  Json object;
  object.set("input_tokens", usage.prompt_tokens);
  object.set("input_tokens_details", Json().set("cached_tokens", usage.cached_tokens).set("cache_write_tokens", 0));
  object.set("output_tokens", usage.completion_tokens);
  object.set("output_tokens_details", Json().set("reasoning_tokens", std::max<int64_t>(0, usage.reasoning_tokens)));
  object.set("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  return object;
}

}  // namespace

ResponseWire::ResponseWire(const Generation& generation, const TextModel& model)
    : generation_(generation), plan_(*generation.response), tokenizer_(*model.tokenizer) {}

void ResponseWire::event(std::string& out, std::string_view type, std::string_view more) {
  fmt::format_to(std::back_inserter(out), "event: {}\ndata: {{\"type\":\"{}\",\"sequence_number\":{},{}}}\n\n", type,
                 type, events_++, more);
}

/// Where an event belongs.
std::string ResponseWire::place(bool content) const {
  return fmt::format(R"("item_id":"{}","output_index":{}{})", item_.id, output_.size(),
                     content ? ",\"content_index\":0" : "");
}

void ResponseWire::first_chunk(std::string& out, int32_t, const Prompt&, const std::vector<TokenLogprobs>&,
                               const Usage&) {
  begun_ = true;
  const std::string object = "\"response\":" + response("in_progress", nullptr).dump();
  event(out, "response.created", object);
  event(out, "response.in_progress", object);
}

void ResponseWire::chunk(std::string& out, int32_t, const AnswerPiece& piece, const Usage&) {
  note_logprobs(piece.shown);
  if (!piece.text.empty()) say(out, {ReplyPiece::Kind::content, -1, piece.text, {}});
  for (const ReplyPiece& one : piece.reply) say(out, one);
  if (piece.end) end_ = *piece.end;
}

void ResponseWire::note_logprobs(const std::vector<ShownToken>& shown) {
  if (plan_.logprobs) unshown_.insert(unshown_.end(), shown.begin(), shown.end());
}

void ResponseWire::say(std::string& out, const ReplyPiece& piece) {
  const bool content = piece.kind == ReplyPiece::Kind::content;
  switch (piece.kind) {
    case ReplyPiece::Kind::content: open(out, Kind::message, piece); break;
    case ReplyPiece::Kind::reasoning: open(out, Kind::reasoning, piece); break;
    case ReplyPiece::Kind::call: return open(out, Kind::call, piece);
    case ReplyPiece::Kind::arguments: break;
  }
  const bool call = piece.kind == ReplyPiece::Kind::arguments;
  std::string more = fmt::format(R"({},"delta":{})", place(!call), quoted(piece.text));
  if (content) {
    Json::Array logprobs = take_logprobs(piece.text);
    more += ",\"logprobs\":" + Json(logprobs).dump();
    std::move(logprobs.begin(), logprobs.end(), std::back_inserter(item_.logprobs));
  }
  item_.text += piece.text;
  event(out,
        call      ? "response.function_call_arguments.delta"
        : content ? "response.output_text.delta"
                  : "response.reasoning_text.delta",
        more);
}

/// Goes on in an item of this kind; every call is one of its own.
void ResponseWire::open(std::string& out, Kind kind, const ReplyPiece& piece) {
  if (item_.kind == kind && kind != Kind::call) return;
  close(out, "completed");
  item_.kind = kind;
  item_.id = (kind == Kind::message ? "msg_" : kind == Kind::reasoning ? "rs_" : "fc_") + random_hex();
  if (kind == Kind::call) {
    item_.call_id = piece.id;
    item_.name = piece.text;
  }
  Json item = item_object("in_progress");
  if (kind != Kind::call) item.set("content", Json::Array{});
  event(out, "response.output_item.added", fmt::format(R"("output_index":{},"item":{})", output_.size(), item.dump()));
  if (kind == Kind::call) return;
  event(out, "response.content_part.added", fmt::format(R"({},"part":{})", place(true), content_part().dump()));
}

void ResponseWire::close(std::string& out, std::string_view status) {
  if (item_.kind == Kind::none) return;
  const std::string text = quoted(item_.text);
  if (item_.kind == Kind::call) {
    event(out, "response.function_call_arguments.done",
          fmt::format(R"({},"name":{},"arguments":{})", place(false), quoted(item_.name), text));
  } else {
    const bool message = item_.kind == Kind::message;
    std::string more = fmt::format(R"({},"text":{})", place(true), text);
    if (message) more += ",\"logprobs\":" + Json(item_.logprobs).dump();
    event(out, message ? "response.output_text.done" : "response.reasoning_text.done", more);
    event(out, "response.content_part.done", fmt::format(R"({},"part":{})", place(true), content_part().dump()));
  }
  Json item = item_object(status);
  event(out, "response.output_item.done", fmt::format(R"("output_index":{},"item":{})", output_.size(), item.dump()));
  output_.push_back(std::move(item));
  item_ = {};
}

Json ResponseWire::content_part() const {
  if (item_.kind == Kind::reasoning) return Json().set("type", "reasoning_text").set("text", item_.text);
  return Json()
      .set("type", "output_text")
      .set("text", item_.text)
      .set("annotations", Json::Array{})
      .set("logprobs", item_.logprobs);
}

Json ResponseWire::item_object(std::string_view status) const {
  Json item = Json().set("id", item_.id);
  if (item_.kind == Kind::call) {
    item.set("type", "function_call").set("status", status).set("call_id", item_.call_id);
    return item.set("name", item_.name).set("arguments", item_.text);
  }
  if (item_.kind == Kind::message) {
    item.set("type", "message").set("status", status).set("role", "assistant");
  } else {
    item.set("type", "reasoning").set("status", status).set("summary", Json::Array{}).set("encrypted_content", nullptr);
  }
  return item.set("content", Json::Array{content_part()});
}

/// The logprobs that belong to a text. Where it begins a message, tokens before it were markers and thoughts, and
/// tokens after it are for later.
Json::Array ResponseWire::take_logprobs(std::string_view text) {
  std::vector<ShownToken> tokens = std::exchange(unshown_, {});
  if (item_.text.empty()) {
    std::string joined;
    for (const ShownToken& token : tokens) joined += tokenizer_.token_bytes(token.id);
    const size_t begin = joined.rfind(text);
    size_t at = 0;
    std::vector<ShownToken> kept;
    for (ShownToken& token : tokens) {
      const size_t start = std::exchange(at, at + tokenizer_.token_bytes(token.id).size());
      if (begin != std::string::npos && at <= begin) continue;
      const bool later = begin != std::string::npos && start >= begin + text.size();
      (later ? unshown_ : kept).push_back(std::move(token));
    }
    tokens = std::move(kept);
  }
  Json::Array logprobs;
  for (const ShownToken& token : tokens) {
    Json::Array top;
    for (const auto& [id, value] : token.logprobs.top) top.push_back(logprob(id, value));
    logprobs.push_back(logprob(token.id, token.logprobs.chosen).set("top_logprobs", std::move(top)));
  }
  return logprobs;
}

Json ResponseWire::logprob(int32_t token, float value) const {
  const double most = generation_.params.sampling.tell_logits ? std::numeric_limits<double>::max() : 0.0;
  Json::Array bytes;
  for (const char byte : tokenizer_.token_bytes(token))
    bytes.emplace_back(static_cast<int>(static_cast<unsigned char>(byte)));
  return Json()
      .set("token", std::string(tokenizer_.token_bytes(token)))
      .set("logprob", std::isfinite(value) ? std::min(most, static_cast<double>(value)) : kLeastLogprob)
      .set("bytes", std::move(bytes));
}

/// A whole answer has at least one item, if an empty message.
void ResponseWire::end_items(std::string& out) {
  const bool cut = std::string_view(end_.reason) == "length";
  if (!cut && output_.empty() && item_.kind == Kind::none) open(out, Kind::message, {});
  close(out, cut ? "incomplete" : "completed");
}

Json ResponseWire::response(std::string_view status, const Usage* usage) const {
  Json object = plan_.object;
  object.set("status", status).set("output", output_);
  if (status == "completed") object.set("completed_at", unix_seconds());
  if (status == "incomplete") object.set("incomplete_details", Json().set("reason", "max_output_tokens"));
  if (usage != nullptr) object.set("usage", usage_object(*usage));
  return object;
}

void ResponseWire::finish(std::string& out, const Usage& usage) {
  end_items(out);
  const bool cut = std::string_view(end_.reason) == "length";
  const Json object = response(cut ? "incomplete" : "completed", &usage);
  event(out, cut ? "response.incomplete" : "response.completed", "\"response\":" + object.dump());
  out += "data: [DONE]\n\n";
  keep(object);
}

void ResponseWire::error(std::string& out, const ApiError& error) {
  if (!begun_) first_chunk(out, 0, {}, {}, {});
  const std::string code = error.code.empty() ? error.type : error.code;
  std::string body = error_body(error);  // {"error":{...}}
  event(out, "error",
        fmt::format(R"("code":{},"message":{},"param":{},{})", quoted(code), quoted(error.message),
                    error.param.empty() ? "null" : quoted(error.param), body.substr(1, body.size() - 2)));
  Json object = response("failed", nullptr);
  object.set("error", Json().set("code", code).set("message", error.message));
  event(out, "response.failed", "\"response\":" + object.dump());
  out += "data: [DONE]\n\n";
}

std::string ResponseWire::whole(const std::vector<WholeChoice>& choices, const Usage& usage) {
  const WholeChoice& choice = choices.front();
  std::string events;  // nobody wants them here
  if (!choice.reasoning.empty()) say(events, {ReplyPiece::Kind::reasoning, -1, choice.reasoning, {}});
  note_logprobs(choice.shown);
  if (!choice.text.empty()) say(events, {ReplyPiece::Kind::content, -1, choice.text, {}});
  for (const WholeChoice::Call& call : choice.calls) {
    say(events, {ReplyPiece::Kind::call, -1, call.name, call.id});
    say(events, {ReplyPiece::Kind::arguments, -1, call.arguments, {}});
  }
  end_ = choice.end;
  end_items(events);
  const Json object = response(std::string_view(end_.reason) == "length" ? "incomplete" : "completed", &usage);
  keep(object);
  return object.dump();
}

void ResponseWire::keep(const Json& response) const {
  if (!plan_.kept) return;
  StoredResponse stored;
  stored.body = response.dump();
  stored.items = plan_.items;
  stored.inputs = stored.items.size();
  for (const Json& item : output_) stored.items.push_back(std::make_shared<const std::string>(item.dump()));
  plan_.shelf.store->put(plan_.shelf.owner, plan_.id, std::move(stored));
}

}  // namespace quern
