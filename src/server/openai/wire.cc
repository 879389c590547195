#include "server/openai/wire.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <limits>

#include "base/json.h"

namespace quern {
namespace {

constexpr double kLeastLogprob = -9999.0;

void append(std::string& out, std::string_view text) { out += text; }
void append_integer(std::string& out, int64_t value) { fmt::format_to(std::back_inserter(out), "{}", value); }

void append_ids(std::string& out, const std::vector<int32_t>& ids) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    append_integer(out, ids[i]);
  }
  out += ']';
}

void append_end(std::string& out, const AnswerEnd* end) {
  append(out, R"(,"finish_reason":)");
  if (end == nullptr) return append(out, "null");
  append_json_string(out, end->reason);
  append(out, R"(,"stop_reason":)");
  if (end->stop_string) {
    append_json_string(out, *end->stop_string);
  } else if (end->stop_token) {
    append_integer(out, *end->stop_token);
  } else {
    append(out, "null");
  }
}

/// The prompt's tokens as they are shown before the answer's.
std::vector<ShownToken> echoed(const Prompt& prompt, const std::vector<TokenLogprobs>& scores, int32_t best) {
  std::vector<ShownToken> shown;
  for (size_t i = 0; i < prompt.tokens.size() && i <= scores.size(); ++i) {
    ShownToken& token = shown.emplace_back(prompt.tokens[i], prompt.echo_offsets[i]);
    token.scored = i > 0;
    if (i == 0) continue;
    token.logprobs = scores[i - 1];
    token.logprobs.top.resize(std::min(token.logprobs.top.size(), static_cast<size_t>(best)));
  }
  return shown;
}

/// Bytes as a list; what a client joins to get the text back.
void append_bytes(std::string& out, std::string_view bytes) {
  out += '[';
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    append_integer(out, static_cast<unsigned char>(bytes[i]));
  }
  out += ']';
}

}  // namespace

void append_usage(std::string& out, const Usage& usage) {
  fmt::format_to(
      std::back_inserter(out),
      R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}}})",
      usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens + usage.completion_tokens, usage.cached_tokens);
  if (usage.reasoning_tokens >= 0) {
    fmt::format_to(std::back_inserter(out), R"(,"completion_tokens_details":{{"reasoning_tokens":{}}})",
                   usage.reasoning_tokens);
  }
  out += '}';
}

int64_t utf8_length(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

OpenAiWire::OpenAiWire(const Generation& generation, const TextModel& model, const Identity& identity)
    : generation_(generation), tokenizer_(*model.tokenizer), reasoning_fields_(model.options.reasoning_fields) {
  const auto head = [&](std::string_view object) {
    std::string out = R"({"id":)";
    append_json_string(out, identity.id);
    append(out, R"(,"object":)");
    append_json_string(out, object);
    append(out, R"(,"created":)");
    append_integer(out, identity.created);
    append(out, R"(,"model":)");
    append_json_string(out, generation.model);
    append(out, R"(,"system_fingerprint":)");
    append_json_string(out, identity.fingerprint);
    append(out, R"(,"choices":[)");
    return out;
  };
  whole_head_ = head(generation.chat ? "chat.completion" : "text_completion");
  chunk_head_ = "data: " + head(generation.chat ? "chat.completion.chunk" : "text_completion");
}

void OpenAiWire::begin_chunk(std::string& out, int32_t index) const {
  append(out, chunk_head_);
  append(out, R"({"index":)");
  append_integer(out, index);
}

void OpenAiWire::end_chunk(std::string& out, const AnswerEnd* end, const std::vector<int32_t>* token_ids,
                           const Usage& usage) const {
  append_end(out, end);
  if (generation_.params.return_token_ids && token_ids != nullptr) {
    append(out, R"(,"token_ids":)");
    append_ids(out, *token_ids);
  }
  append(out, "}]");
  if (generation_.params.continuous_usage) {
    append(out, R"(,"usage":)");
    append_usage(out, usage);
  } else if (generation_.params.include_usage) {
    append(out, R"(,"usage":null)");
  }
  append(out, "}\n\n");
}

void OpenAiWire::first_chunk(std::string& out, int32_t index, const Prompt& prompt,
                             const std::vector<TokenLogprobs>& scores, const Usage& usage) {
  if (!generation_.chat && prompt.echo.empty() && !generation_.params.return_token_ids) return;
  begin_chunk(out, index);
  if (generation_.chat) {
    append(out, R"(,"delta":{"role":"assistant","content":)");
    append(out, generation_.reply.parsed ? R"(null,"refusal":null})" : R"("","refusal":null})");
  } else {
    append(out, R"(,"text":)");
    append_json_string(out, prompt.echo);
  }
  append(out, R"(,"logprobs":)");
  if (generation_.echoes_logprobs()) {
    append_completion_logprobs(out, echoed(prompt, scores, generation_.params.sampling.logprobs), 0);
  } else {
    append(out, "null");
  }
  if (generation_.params.return_token_ids) {
    append(out, R"(,"prompt_token_ids":)");
    append_ids(out, prompt.tokens);
  }
  end_chunk(out, nullptr, nullptr, usage);
}

void OpenAiWire::chunk(std::string& out, int32_t index, const AnswerPiece& piece, const Usage& usage) {
  const bool ids = generation_.params.return_token_ids && !piece.token_ids.empty();
  const bool text = !piece.text.empty() || !piece.shown.empty() || ids;
  const AnswerEnd* end = piece.end ? &*piece.end : nullptr;
  if (generation_.chat) {
    for (const ReplyPiece& one : piece.reply) reply_chunk(out, index, one, usage);
    if (text) {
      begin_chunk(out, index);
      append(out, R"(,"delta":{"content":)");
      append_json_string(out, piece.text);
      append(out, R"(},"logprobs":)");
      append_logprobs(out, piece.shown, "");
      end_chunk(out, nullptr, &piece.token_ids, usage);
    }
    if (end == nullptr) return;
    begin_chunk(out, index);
    append(out, R"(,"delta":{},"logprobs":null)");
    return end_chunk(out, end, nullptr, usage);
  }
  if (!text && end == nullptr) return;
  begin_chunk(out, index);
  append(out, R"(,"text":)");
  append_json_string(out, piece.text);
  append(out, R"(,"logprobs":)");
  append_logprobs(out, piece.shown, prompt_of(index).echo);
  end_chunk(out, end, &piece.token_ids, usage);
}

/// A chunk for a part of a parsed reply; the name of a call comes before its arguments.
void OpenAiWire::reply_chunk(std::string& out, int32_t index, const ReplyPiece& piece, const Usage& usage) const {
  const bool legacy = generation_.reply.tools.legacy;
  begin_chunk(out, index);
  append(out, R"(,"delta":{)");
  if (piece.kind == ReplyPiece::Kind::content) {
    append(out, R"("content":)");
    append_json_string(out, piece.text);
  } else if (piece.kind == ReplyPiece::Kind::reasoning) {
    append_reasoning(out, piece.text);
  } else {
    if (!legacy) fmt::format_to(std::back_inserter(out), R"("tool_calls":[{{"index":{},)", piece.call);
    const bool begins = piece.kind == ReplyPiece::Kind::call;
    if (begins && !legacy) {
      append(out, R"("id":)");
      append_json_string(out, piece.id);
      append(out, R"(,"type":"function",)");
    }
    append(out, legacy ? R"("function_call":{)" : R"("function":{)");
    append(out, begins ? R"("name":)" : R"("arguments":)");
    append_json_string(out, piece.text);
    append(out, begins ? R"(,"arguments":""})" : "}");
    if (!legacy) append(out, "}]");
  }
  append(out, R"(},"logprobs":null)");
  end_chunk(out, nullptr, nullptr, usage);
}

/// Under both names, unless the operator wants one: some clients know this one, some that one.
void OpenAiWire::append_reasoning(std::string& out, std::string_view text) const {
  if (reasoning_fields_ != ReasoningFields::reasoning_content) {
    append(out, R"("reasoning":)");
    append_json_string(out, text);
  }
  if (reasoning_fields_ == ReasoningFields::both) out += ',';
  if (reasoning_fields_ != ReasoningFields::reasoning) {
    append(out, R"("reasoning_content":)");
    append_json_string(out, text);
  }
}

void OpenAiWire::finish(std::string& out, const Usage& usage) {
  if (generation_.params.include_usage) {
    append(out, chunk_head_);
    append(out, R"(],"usage":)");
    append_usage(out, usage);
    append(out, "}\n\n");
  }
  append(out, "data: [DONE]\n\n");
}

void OpenAiWire::error(std::string& out, const ApiError& error) { out += "data: " + error_body(error) + "\n\n"; }

std::string OpenAiWire::whole(const std::vector<WholeChoice>& choices, const Usage& usage) {
  std::string out = whole_head_;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) out += ',';
    append_choice(out, static_cast<int32_t>(i), choices[i]);
  }
  append(out, R"(],"usage":)");
  append_usage(out, usage);
  if (generation_.chat && generation_.params.return_token_ids) {
    append(out, R"(,"prompt_token_ids":)");
    append_ids(out, generation_.prompts.front().tokens);
  }
  if (generation_.chat && generation_.params.prompt_logprobs) {
    append_prompt_logprobs(out, generation_.prompts.front(), choices.front().scores);
  }
  out += '}';
  return out;
}

void OpenAiWire::append_choice(std::string& out, int32_t index, const WholeChoice& choice) const {
  append(out, R"({"index":)");
  append_integer(out, index);
  const Prompt& prompt = generation_.prompts[static_cast<size_t>(choice.prompt)];
  if (generation_.chat) {
    append_message(out, choice);
  } else {
    append(out, R"(,"text":)");
    append_json_string(out, prompt.echo + choice.text);
  }
  append(out, R"(,"logprobs":)");
  if (generation_.echoes_logprobs()) {
    const int64_t end = utf8_length(prompt.echo);
    std::vector<ShownToken> shown = echoed(prompt, choice.scores, generation_.params.sampling.logprobs);
    for (const ShownToken& token : choice.shown) shown.push_back({token.id, end + token.text_offset, token.logprobs});
    append_completion_logprobs(out, shown, 0);
  } else {
    append_logprobs(out, choice.shown, prompt.echo);
  }
  append_end(out, &choice.end);
  if (!generation_.chat && generation_.params.prompt_logprobs) append_prompt_logprobs(out, prompt, choice.scores);
  if (generation_.params.return_token_ids) {
    if (!generation_.chat) {
      append(out, R"(,"prompt_token_ids":)");
      append_ids(out, prompt.tokens);
    }
    append(out, R"(,"token_ids":)");
    append_ids(out, choice.token_ids);
  }
  out += '}';
}

void OpenAiWire::append_message(std::string& out, const WholeChoice& choice) const {
  append(out, R"(,"message":{"role":"assistant","content":)");
  if (choice.text.empty() && (!choice.calls.empty() || !choice.reasoning.empty())) {
    append(out, "null");
  } else {
    append_json_string(out, choice.text);
  }
  append(out, R"(,"refusal":null)");
  if (!choice.reasoning.empty()) {
    out += ',';
    append_reasoning(out, choice.reasoning);
  }
  const bool legacy = generation_.reply.tools.legacy;
  for (size_t i = 0; i < choice.calls.size(); ++i) {
    const WholeChoice::Call& call = choice.calls[i];
    append(out, legacy ? R"(,"function_call":{)" : i == 0 ? R"(,"tool_calls":[{)" : ",{");
    if (!legacy) {
      append(out, R"("id":)");
      append_json_string(out, call.id);
      append(out, R"(,"type":"function","function":{)");
    }
    append(out, R"("name":)");
    append_json_string(out, call.name);
    append(out, R"(,"arguments":)");
    append_json_string(out, call.arguments);
    append(out, legacy ? "}" : "}}");
  }
  if (!legacy && !choice.calls.empty()) out += ']';
  out += '}';
}

void OpenAiWire::append_logprobs(std::string& out, const std::vector<ShownToken>& shown, std::string_view echo) const {
  if (generation_.params.sampling.logprobs < 0) return append(out, "null");
  if (generation_.chat) return append_chat_logprobs(out, shown);
  append_completion_logprobs(out, shown, utf8_length(echo));
}

/// A map for each token of the prompt: itself, then the best ones.
void OpenAiWire::append_prompt_logprobs(std::string& out, const Prompt& prompt,
                                        const std::vector<TokenLogprobs>& scores) const {
  const auto best = static_cast<size_t>(*generation_.params.prompt_logprobs);
  append(out, R"(,"prompt_logprobs":[null)");
  for (size_t i = 0; i < scores.size(); ++i) {
    const int32_t id = prompt.tokens[i + 1];
    append(out, ",{");
    append_ranked(out, id, scores[i].chosen, scores[i].rank);
    for (size_t k = 0; k < std::min(scores[i].top.size(), best); ++k) {
      const auto& [other, logprob] = scores[i].top[k];
      if (other == id) continue;
      out += ',';
      append_ranked(out, other, logprob, static_cast<int32_t>(k) + 1);
    }
    out += '}';
  }
  out += ']';
}

void OpenAiWire::append_ranked(std::string& out, int32_t id, float logprob, int32_t rank) const {
  fmt::format_to(std::back_inserter(out), R"("{}":{{"logprob":)", id);
  append_logprob(out, logprob);
  fmt::format_to(std::back_inserter(out), R"(,"rank":{},"decoded_token":)", rank);
  append_token(out, id);
  out += '}';
}

/// Logits may be above 0.
void OpenAiWire::append_logprob(std::string& out, float value) const {
  const double most = generation_.params.sampling.tell_logits ? std::numeric_limits<double>::max() : 0.0;
  append_json_number(out, std::isfinite(value) ? std::min(most, static_cast<double>(value)) : kLeastLogprob);
}

void OpenAiWire::append_token(std::string& out, int32_t id) const {
  if (generation_.params.tokens_as_ids) return append_json_string(out, fmt::format("token_id:{}", id));
  append_json_string(out, token_bytes(id));
}

void OpenAiWire::append_scored(std::string& out, int32_t id, float logprob) const {
  append(out, R"({"token":)");
  append_token(out, id);
  append(out, R"(,"logprob":)");
  append_logprob(out, logprob);
  append(out, R"(,"bytes":)");
  append_bytes(out, token_bytes(id));
}

void OpenAiWire::append_chat_logprobs(std::string& out, const std::vector<ShownToken>& shown) const {
  append(out, R"({"content":[)");
  for (size_t i = 0; i < shown.size(); ++i) {
    if (i > 0) out += ',';
    append_scored(out, shown[i].id, shown[i].logprobs.chosen);
    append(out, R"(,"top_logprobs":[)");
    const auto& top = shown[i].logprobs.top;
    for (size_t k = 0; k < top.size(); ++k) {
      if (k > 0) out += ',';
      append_scored(out, top[k].first, top[k].second);
      out += '}';
    }
    append(out, "]}");
  }
  append(out, R"(],"refusal":null})");
}

/// The best tokens, and the chosen one when it is not among them.
void OpenAiWire::append_best(std::string& out, const ShownToken& token) const {
  bool chosen = false;
  out += '{';
  for (const auto& [id, logprob] : token.logprobs.top) {
    chosen = chosen || id == token.id;
    append_token(out, id);
    out += ':';
    append_logprob(out, logprob);
    out += ',';
  }
  if (!chosen) {
    append_token(out, token.id);
    out += ':';
    append_logprob(out, token.logprobs.chosen);
    out += ',';
  }
  out.back() = '}';
}

/// `offset`: characters of the text before the answer.
void OpenAiWire::append_completion_logprobs(std::string& out, const std::vector<ShownToken>& shown,
                                            int64_t offset) const {
  const auto list = [&](std::string_view name, auto&& item) {
    append_json_string(out, name);
    append(out, ":[");
    for (size_t i = 0; i < shown.size(); ++i) {
      if (i > 0) out += ',';
      item(shown[i]);
    }
    out += ']';
  };
  out += '{';
  list("tokens", [&](const ShownToken& token) { append_token(out, token.id); });
  out += ',';
  list("token_logprobs", [&](const ShownToken& token) {
    token.scored ? append_logprob(out, token.logprobs.chosen) : append(out, "null");
  });
  out += ',';
  list("top_logprobs", [&](const ShownToken& token) { token.scored ? append_best(out, token) : append(out, "null"); });
  out += ',';
  list("text_offset", [&](const ShownToken& token) { append_integer(out, offset + token.text_offset); });
  out += '}';
}

}  // namespace quern
