#include "server/llama/wire.h"

#include <algorithm>
#include <utility>

#include "server/llama/peer.h"
#include "server/llama/settings.h"

namespace quern {
namespace {

std::string_view error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429:
    case 503: return "unavailable_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string_view stop_type(const AnswerEnd& end) {
  if (std::string_view(end.reason) == "length") return "limit";
  return end.stop_string ? "word" : "eos";
}

void append_event(std::string& out, const Json& object) { out += "data: " + object.dump() + "\n\n"; }

}  // namespace

std::string llama_error(const ApiError& error) {
  const bool too_long = error.code == "context_length_exceeded";
  Json inner;
  inner.set("code", error.status).set("message", error.message);
  inner.set("type", std::string(too_long ? "exceed_context_size_error" : error_type(error.status)));
  if (too_long && error.context_tokens > 0)
    inner.set("n_prompt_tokens", error.prompt_tokens).set("n_ctx", error.context_tokens);
  return Json().set("error", std::move(inner)).dump();
}

std::unique_ptr<Wire> LlamaForm::wire(const Generation& generation, const TextModel& model) const {
  return std::make_unique<LlamaWire>(generation, model, *this);
}

LlamaWire::LlamaWire(const Generation& generation, const TextModel& model, const LlamaForm& form)
    : generation_(generation),
      tokenizer_(*model.tokenizer),
      form_(form),
      model_(generation.model),
      context_(model.options.max_model_len),
      told_(generation.prompts.size() * static_cast<size_t>(generation.params.n)) {}

void LlamaWire::chunk(std::string& out, int32_t index, const AnswerPiece& piece, const Usage& usage) {
  Told& told = told_[static_cast<size_t>(index)];
  told.tokens += static_cast<int64_t>(piece.token_ids.size());
  told.new_line = told.new_line || piece.text.find('\n') != std::string::npos;
  const auto evaluated = static_cast<int64_t>(prompt_of(index).tokens.size());
  if (!piece.text.empty() || !piece.shown.empty()) {
    Json event;
    event.set("index", index).set("content", piece.text).set("tokens", ids_json(piece.token_ids));
    event.set("stop", false).set("id_slot", 0);
    event.set("tokens_predicted", told.tokens).set("tokens_evaluated", evaluated);
    if (!piece.shown.empty()) event.set("completion_probabilities", probabilities(piece.shown));
    if (form_.timings) event.set("timings", timings(evaluated, told.tokens, usage.times));
    append_event(out, event);
  }
  if (piece.end) append_event(out, chosen_fields(last(index, told, *piece.end, usage.times)));
}

void LlamaWire::error(std::string& out, const ApiError& error) { out += "data: " + llama_error(error) + "\n\n"; }

std::string LlamaWire::whole(const std::vector<WholeChoice>& choices, const Usage&) {
  Json all(Json::Array{});
  for (size_t i = 0; i < choices.size(); ++i) {
    const WholeChoice& choice = choices[i];
    const Told told{static_cast<int64_t>(choice.token_ids.size()), choice.text.find('\n') != std::string::npos};
    Json object = last(static_cast<int32_t>(i), told, choice.end, choice.times);
    object.set("content", choice.text);
    if (form_.tokens) object.set("tokens", ids_json(choice.token_ids));
    if (!choice.shown.empty()) object.set("completion_probabilities", probabilities(choice.shown));
    all.items().push_back(chosen_fields(std::move(object)));
  }
  return form_.several ? all.dump() : all.items().front().dump();
}

Json LlamaWire::last(int32_t index, const Told& told, const AnswerEnd& end, const AnswerTimes& times) const {
  const std::vector<int32_t>& prompt = prompt_of(index).tokens;
  const auto evaluated = static_cast<int64_t>(prompt.size());
  Json object;
  object.set("index", index).set("content", "").set("tokens", Json::Array{}).set("id_slot", 0).set("stop", true);
  object.set("model", model_).set("tokens_predicted", told.tokens).set("tokens_evaluated", evaluated);
  object.set("generation_settings", form_.settings).set("prompt", tokenizer_.decode(prompt, false));
  object.set("has_new_line", told.new_line);
  object.set("truncated", std::string_view(end.reason) == "length" && evaluated + told.tokens >= context_);
  object.set("stop_type", std::string(stop_type(end))).set("stopping_word", end.stop_string.value_or(""));
  object.set("tokens_cached", int64_t{times.cached_tokens});
  return object.set("timings", timings(evaluated, told.tokens, times));
}

/// Only the fields that were asked for; "a/b" is the member b of a.
Json LlamaWire::chosen_fields(Json object) const {
  if (form_.response_fields.empty()) return object;
  Json chosen = Json(Json::Object{});
  for (const std::string& path : form_.response_fields) {
    const Json* found = &object;
    for (size_t begin = 0; found != nullptr && begin <= path.size();) {
      const size_t end = std::min(path.find('/', begin), path.size());
      found = found->find(path.substr(begin, end - begin));
      begin = end + 1;
    }
    if (found != nullptr) chosen.set(path, *found);
  }
  return chosen;
}

Json LlamaWire::timings(int64_t prompt_tokens, int64_t made, const AnswerTimes& times) const {
  const auto add = [](Json& to, std::string_view name, int64_t count, int64_t from_us, int64_t to_us) {
    const double ms = static_cast<double>(std::max<int64_t>(1, to_us - from_us)) / 1000;
    const std::string prefix(name);
    to.set(prefix + "_n", count).set(prefix + "_ms", ms);
    to.set(prefix + "_per_token_ms", count > 0 ? Json(ms / static_cast<double>(count)) : Json());
    to.set(prefix + "_per_second", static_cast<double>(count) * 1000 / ms);
  };
  Json out;
  out.set("cache_n", int64_t{times.cached_tokens});
  add(out, "prompt", prompt_tokens - times.cached_tokens, times.started_us, times.first_token_us);
  add(out, "predicted", made, times.first_token_us, times.last_token_us);
  return out;
}

Json LlamaWire::probabilities(const std::vector<ShownToken>& shown) const {
  Json list(Json::Array{});
  const auto most = static_cast<size_t>(std::max(0, generation_.params.sampling.logprobs));
  for (const ShownToken& token : shown) {
    Json top(Json::Array{});
    for (size_t i = 0; i < std::min(most, token.logprobs.top.size()); ++i)
      top.items().push_back(scored(token.logprobs.top[i].first, token.logprobs.top[i].second));
    Json one = scored(token.id, token.logprobs.chosen);
    list.items().push_back(std::move(one.set("top_logprobs", std::move(top))));
  }
  return list;
}

Json LlamaWire::scored(int32_t id, float logprob) const {
  const std::string_view bytes = tokenizer_.token_bytes(id);
  Json list(Json::Array{});
  for (const char byte : bytes) list.items().emplace_back(int{static_cast<unsigned char>(byte)});
  Json one;
  one.set("id", id).set("token", std::string(bytes)).set("bytes", std::move(list));
  return one.set("logprob", std::max(static_cast<double>(logprob), -9999.0));
}

}  // namespace quern
