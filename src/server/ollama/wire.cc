#include "server/ollama/wire.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/json.h"
#include "server/llama/peer.h"

namespace quern {
namespace {

void append_head(std::string& out, const std::string& model) {
  out += "{\"model\":";
  append_json_string(out, model);
  fmt::format_to(std::back_inserter(out), ",\"created_at\":\"{}\",", time_text(unix_time_us()));
}

}  // namespace

std::string ollama_error(const ApiError& error) {
  std::string out = "{\"error\":";
  append_json_string(out, error.message);
  return out + '}';
}

std::string ollama_loaded(const std::string& model, bool chat, bool unload) {
  std::string out;
  append_head(out, model);
  out += chat ? R"("message":{"role":"assistant","content":""})" : R"("response":"")";
  return out + fmt::format(R"(,"done":true,"done_reason":"{}"}})", unload ? "unload" : "load");
}

std::unique_ptr<Wire> OllamaForm::wire(const Generation& generation, const TextModel& model) const {
  return std::make_unique<OllamaWire>(generation, model, *this);
}

OllamaWire::OllamaWire(const Generation& generation, const TextModel& model, const OllamaForm& form)
    : generation_(generation), tokenizer_(*model.tokenizer), chat_(form.chat), context_(form.context) {}

void OllamaWire::chunk(std::string& out, int32_t, const AnswerPiece& piece, const Usage&) {
  if (context_) made_.insert(made_.end(), piece.token_ids.begin(), piece.token_ids.end());
  if (!piece.shown.empty()) append_logprobs(logprobs_, piece.shown);
  if (!piece.text.empty()) line(out, {.text = piece.text, .thinking = {}, .calls = {}});
  for (const ReplyPiece& one : piece.reply) {
    if (one.kind != ReplyPiece::Kind::arguments) flush_call(out);
    switch (one.kind) {
      case ReplyPiece::Kind::content: line(out, {.text = one.text, .thinking = {}, .calls = {}}); break;
      case ReplyPiece::Kind::reasoning: line(out, {.text = {}, .thinking = one.text, .calls = {}}); break;
      case ReplyPiece::Kind::call: call_ = WholeChoice::Call{one.id, one.text, {}}; break;
      case ReplyPiece::Kind::arguments:
        if (call_) call_->arguments += one.text;
        break;
    }
  }
  if (piece.end) {
    flush_call(out);
    end_ = *piece.end;
  }
  if (!logprobs_.empty()) line(out, {});
}

/// A call is told when it is whole, as its arguments are an object.
void OllamaWire::flush_call(std::string& out) {
  if (!call_) return;
  line(out, {.text = {}, .thinking = {}, .calls = call_json(*std::exchange(call_, std::nullopt))});
}

std::string OllamaWire::call_json(const WholeChoice::Call& call) {
  const auto arguments = Json::parse(call.arguments);
  std::string out = "{\"id\":";
  append_json_string(out, call.id);
  fmt::format_to(std::back_inserter(out), ",\"function\":{{\"index\":{},\"name\":", calls_++);
  append_json_string(out, call.name);
  return out + ",\"arguments\":" + (arguments.ok() && arguments->is_object() ? arguments->dump() : "{}") + "}}";
}

void OllamaWire::line(std::string& out, const Said& said) {
  append_head(out, generation_.model);
  append_said(out, said);
  out += ",\"done\":false";
  if (!logprobs_.empty()) out += ",\"logprobs\":[" + std::exchange(logprobs_, {}) + ']';
  out += "}\n";
}

void OllamaWire::append_said(std::string& out, const Said& said) const {
  out += chat_ ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"response\":";
  append_json_string(out, said.text);
  if (!said.thinking.empty()) {
    out += ",\"thinking\":";
    append_json_string(out, said.thinking);
  }
  if (!said.calls.empty()) out += ",\"tool_calls\":[" + said.calls + ']';
  if (chat_) out += '}';
}

void OllamaWire::append_logprobs(std::string& out, const std::vector<ShownToken>& shown) const {
  for (const ShownToken& token : shown) {
    if (!token.scored) continue;
    if (!out.empty()) out += ',';
    append_scored(out, token.id, token.logprobs.chosen);
    const auto most = static_cast<size_t>(std::max(0, generation_.params.sampling.logprobs));
    const size_t count = std::min(most, token.logprobs.top.size());
    if (count > 0) out += ",\"top_logprobs\":[";
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out += ',';
      append_scored(out, token.logprobs.top[i].first, token.logprobs.top[i].second);
      out += '}';
    }
    out += count > 0 ? "]}" : "}";
  }
}

/// Without the closing brace.
void OllamaWire::append_scored(std::string& out, int32_t id, float logprob) const {
  const std::string_view bytes = tokenizer_.token_bytes(id);
  out += "{\"token\":";
  append_json_string(out, bytes);
  out += ",\"logprob\":";
  append_json_number(out, std::max(static_cast<double>(logprob), -9999.0));
  out += ",\"bytes\":[";
  for (size_t i = 0; i < bytes.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}{}", i > 0 ? "," : "", static_cast<unsigned char>(bytes[i]));
  }
  out += ']';
}

void OllamaWire::append_end(std::string& out, const AnswerEnd& end, const std::vector<int32_t>& made,
                            const Usage& usage) const {
  const AnswerTimes& times = usage.times;
  const auto ns = [](int64_t from_us, int64_t to_us) { return std::max<int64_t>(0, to_us - from_us) * 1000; };
  fmt::format_to(std::back_inserter(out), ",\"done\":true,\"done_reason\":\"{}\"",
                 std::string_view(end.reason) == "length" ? "length" : "stop");
  if (context_) {
    const std::vector<int32_t>& prompt = generation_.prompts.front().tokens;
    fmt::format_to(std::back_inserter(out), ",\"context\":[{}{}{}]", fmt::join(prompt, ","), made.empty() ? "" : ",",
                   fmt::join(made, ","));
  }
  const int64_t now = now_us();
  const bool ran = times.first_token_us > 0;
  fmt::format_to(std::back_inserter(out),
                 R"(,"total_duration":{},"load_duration":{},"prompt_eval_count":{},"prompt_eval_duration":{},)"
                 R"("eval_count":{},"eval_duration":{})",
                 ran ? ns(times.arrived_us, now) : 0, ran ? ns(times.arrived_us, times.started_us) : 0,
                 usage.prompt_tokens, ran ? std::max<int64_t>(1, ns(times.started_us, times.first_token_us)) : 0,
                 usage.completion_tokens, ran ? std::max<int64_t>(1, ns(times.first_token_us, now)) : 0);
}

void OllamaWire::finish(std::string& out, const Usage& usage) {
  append_head(out, generation_.model);
  append_said(out, {});
  append_end(out, end_, made_, usage);
  out += "}\n";
}

void OllamaWire::error(std::string& out, const ApiError& error) { out += ollama_error(error) + '\n'; }

/// A line that says nothing: every client adds the texts of lines up.
void OllamaWire::ping(std::string& out) { line(out, {}); }

std::string OllamaWire::whole(const std::vector<WholeChoice>& choices, const Usage& usage) {
  const WholeChoice& choice = choices.front();
  Said said{choice.text, choice.reasoning, {}};
  for (const WholeChoice::Call& call : choice.calls) said.calls += (said.calls.empty() ? "" : ",") + call_json(call);
  std::string out;
  append_head(out, generation_.model);
  append_said(out, said);
  append_end(out, choice.end, choice.token_ids, usage);
  std::string logprobs;
  append_logprobs(logprobs, choice.shown);
  if (!logprobs.empty()) out += ",\"logprobs\":[" + logprobs + ']';
  return out + '}';
}

}  // namespace quern
