#include "server/llama/settings.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <utility>

namespace quern {
namespace {

constexpr size_t kMostBiases = 1024;
constexpr int64_t kRandomSeed = 4294967295;

/// A sampler of llama-server: its name, its letter, and the field that switches it off.
struct Stage {
  std::string_view name;
  char letter;
  std::string_view field;
  double neutral;
};
constexpr Stage kStages[] = {{"top_k", 'k', "top_k", -1},
                             {"typ_p", 'y', "typical_p", 1},
                             {"typical_p", 'y', "typical_p", 1},
                             {"top_p", 'p', "top_p", 1},
                             {"min_p", 'm', "min_p", 0},
                             {"temperature", 't', "temperature", 1},
                             {"penalties", 'e', "", 0},
                             {"dry", 'd', "", 0},
                             {"top_n_sigma", 's', "", 0},
                             {"xtc", 'x', "", 0},
                             {"infill", 'i', "", 0},
                             {"adaptive_p", 'a', "", 0}};

void read_numbers(Fields& fields, Json& body) {
  constexpr double infinity = Fields::kInfinity;
  if (const auto value = fields.number("temperature", -infinity, infinity))
    body.set("temperature", std::max(0.0, *value));
  for (const std::string_view name : {"top_p", "typical_p"}) {
    if (const auto value = fields.number(name, 0, infinity)) body.set(name, std::clamp(*value, 1e-6, 1.0));
  }
  static constexpr std::pair<std::string_view, std::string_view> names[] = {{"min_p", "min_p"},
                                                                            {"presence_penalty", "presence_penalty"},
                                                                            {"frequency_penalty", "frequency_penalty"},
                                                                            {"repeat_penalty", "repetition_penalty"}};
  for (const auto& [theirs, ours] : names) {
    if (const auto value = fields.number(theirs, -infinity, infinity)) body.set(ours, *value);
  }
  for (const std::string_view name : {"top_k", "repeat_last_n"}) {
    if (const auto value = fields.integer(name, -1, std::numeric_limits<int32_t>::max())) body.set(name, *value);
  }
  const auto seed = fields.integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  if (seed && *seed >= 0 && *seed != kRandomSeed) body.set("seed", *seed);
}

/// Which samplers are on; here they always come in one order.
void read_stages(Fields& fields, Json& body) {
  if (fields.describing()) fields.one_of("samplers", {Fields::Kind::array, Fields::Kind::string});
  const Json* samplers = fields.any("samplers");
  if (samplers == nullptr) return;
  if (!samplers->is_array() && !samplers->is_string())
    return fields.wrong_kind("samplers", "names of samplers", *samplers);
  const auto on = [&](const Stage& stage) {
    if (samplers->is_string()) return samplers->as_string().find(stage.letter) != std::string::npos;
    return std::ranges::any_of(samplers->items(), [&](const Json& item) { return item == Json(stage.name); });
  };
  for (const Stage& stage : kStages) {
    const bool any = std::ranges::any_of(kStages, [&](const Stage& s) { return s.letter == stage.letter && on(s); });
    if (!stage.field.empty() && !any) body.set(stage.field, stage.neutral);
  }
  if (!std::ranges::any_of(kStages, [&](const Stage& s) { return s.letter == 'e' && on(s); }))
    body.set("repetition_penalty", 1.0).set("presence_penalty", 0.0).set("frequency_penalty", 0.0);
}

void add_bias(Fields& fields, const TextModel& model, const Json& token, const Json& bias, Json& biases) {
  if (!bias.is_number() && !(bias.is_bool() && !bias.as_bool()))
    return fields.wrong_kind("logit_bias", "a number or false for each token", bias);
  const Json value = bias.is_number() ? Json(std::clamp(bias.as_number(), -100.0, 100.0)) : Json(-100.0);
  if (const auto id = whole(token)) {
    biases.set(std::to_string(*id), value);
  } else if (token.is_string()) {
    auto ids = model.tokenizer->encode(token.as_string(), {.add_special = false, .parse_special = true});
    if (!ids.ok()) return fields.invalid("logit_bias", "invalid_value", ids.error().message);
    for (const int32_t one : *ids) biases.set(std::to_string(one), value);
  } else {
    fields.wrong_kind("logit_bias", "token ids or texts", token);
  }
}

/// Pairs, or an object by id or text.
void read_biases(Fields& fields, const TextModel& model, Json& body) {
  if (fields.describing()) fields.one_of("logit_bias", {Fields::Kind::object, Fields::Kind::array});
  const Json* given = fields.any("logit_bias");
  if (given == nullptr) return;
  Json biases(Json::Object{});
  if (given->is_object() && given->members().size() <= kMostBiases) {
    for (const auto& [key, bias] : given->members()) {
      const bool id = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
      add_bias(fields, model, id ? Json(int64_t{std::stoi(key)}) : Json(key), bias, biases);
    }
  } else if (given->is_array() && given->items().size() <= kMostBiases) {
    for (const Json& pair : given->items()) {
      if (!pair.is_array() || pair.items().size() != 2)
        return fields.wrong_kind("logit_bias", "pairs of a token and its bias", pair);
      add_bias(fields, model, pair.items()[0], pair.items()[1], biases);
    }
  } else {
    return fields.wrong_kind("logit_bias", fmt::format("at most {} pairs", kMostBiases), *given);
  }
  if (!biases.members().empty()) body.set("logit_bias", std::move(biases));
}

void refuse_others(Fields& fields) {
  struct Other {
    std::string_view name;
    double low, high;  // values that mean: off
  };
  constexpr double infinity = Fields::kInfinity;
  static constexpr Other others[] = {
      {"dynatemp_range", 0, 0}, {"xtc_probability", 0, 0},     {"dry_multiplier", 0, 0},
      {"mirostat", 0, 0},       {"top_n_sigma", -infinity, 0}, {"adaptive_target", -infinity, -1e-9},
      {"min_keep", 0, 0}};
  for (const Other& other : others) {
    const auto value = fields.number(other.name, -infinity, infinity);
    if (value && (*value < other.low || *value > other.high)) {
      fields.fail(unsupported(std::string(other.name),
                              fmt::format("Unsupported parameter: '{}' is not supported by this server.", other.name)));
    }
  }
  fields.refuse({"post_sampling_probs", "lora", "return_progress"});
  fields.ignore(Fields::Kind::number,
                {"dynatemp_exponent", "xtc_threshold", "dry_base", "dry_allowed_length", "dry_penalty_last_n",
                 "mirostat_tau", "mirostat_eta", "adaptive_decay", "n_keep", "n_discard", "n_cache_reuse", "id_slot",
                 "sse_ping_interval", "speculative.n_max", "speculative.n_min", "speculative.p_min"});
  fields.ignore(Fields::Kind::array, {"dry_sequence_breakers"});
}

}  // namespace

void read_llama_sampling(Fields& fields, const TextModel& model, Json& body, std::vector<std::string>& passed_over) {
  read_numbers(fields, body);
  add_peer_defaults(llama_defaults, model.options, body);
  read_stages(fields, body);
  read_biases(fields, model, body);
  refuse_others(fields);
  for (const std::string_view name : {"n_indent", "t_max_predict_ms", "t_max_prompt_ms"}) {
    const auto value = fields.number(name, -Fields::kInfinity, Fields::kInfinity);
    if (value && *value > 0) passed_over.emplace_back(name);
  }
  const std::string grammar = fields.string("grammar").value_or("");
  if (const Json* schema = fields.one_of("json_schema", {Fields::Kind::object, Fields::Kind::boolean});
      schema != nullptr && grammar.empty()) {
    body.set("json_schema", *schema);
  } else if (!grammar.empty()) {
    body.set("grammar", grammar);
  }
  if (const auto ignore = fields.boolean("ignore_eos")) body.set("ignore_eos", *ignore);
}

Json llama_settings(const AnswerParams& params, int64_t max_tokens) {
  const SamplingParams& sampling = params.sampling;
  const auto number = [](float value) { return Json(static_cast<double>(value)); };
  Json stops(Json::Array{});
  for (const std::string& stop : params.stops) stops.items().emplace_back(stop);
  Json biases(Json::Array{});
  for (const auto& [token, bias] : sampling.logit_bias)
    biases.items().push_back(Json().set("bias", number(bias)).set("token", token));
  Json out;
  out.set("seed", params.seed.value_or(kRandomSeed)).set("temperature", number(sampling.temperature));
  out.set("dynatemp_range", 0.0).set("dynatemp_exponent", 1.0).set("top_k", sampling.top_k);
  out.set("top_p", number(sampling.top_p)).set("min_p", number(sampling.min_p)).set("top_n_sigma", -1.0);
  out.set("xtc_probability", 0.0).set("xtc_threshold", 0.1).set("typical_p", number(sampling.typical_p));
  out.set("repeat_last_n", sampling.repeat_last_n).set("repeat_penalty", number(sampling.repetition_penalty));
  out.set("presence_penalty", number(sampling.presence_penalty));
  out.set("frequency_penalty", number(sampling.frequency_penalty)).set("dry_multiplier", 0.0).set("dry_base", 1.75);
  out.set("dry_allowed_length", 2).set("dry_penalty_last_n", -1).set("dry_sequence_breakers", Json::Array{});
  out.set("mirostat", 0).set("mirostat_tau", 5.0).set("mirostat_eta", 0.1).set("stop", std::move(stops));
  out.set("max_tokens", max_tokens).set("n_predict", max_tokens).set("n_keep", 0).set("n_discard", 0);
  out.set("ignore_eos", params.ignore_eos).set("stream", params.stream).set("logit_bias", std::move(biases));
  out.set("n_probs", std::max(0, sampling.logprobs)).set("min_keep", 0).set("grammar", "");
  Json stages(Json::Array{});
  for (const char* name : {"penalties", "temperature", "min_p", "top_k", "typ_p", "top_p"})
    stages.items().emplace_back(name);
  out.set("samplers", std::move(stages)).set("timings_per_token", false).set("post_sampling_probs", false);
  return out.set("lora", Json::Array{});
}

Json llama_default_settings(const TextModel& model) {
  Json body;
  add_peer_defaults(llama_defaults, model.options, body);
  AnswerParams params;
  params.sampling = model.options.defaults.sampling;
  params.stream = true;
  if (const auto value = body.number("temperature")) params.sampling.temperature = static_cast<float>(*value);
  if (const auto value = body.number("top_p")) params.sampling.top_p = static_cast<float>(*value);
  if (const auto value = body.number("min_p")) params.sampling.min_p = static_cast<float>(*value);
  if (const auto value = body.integer("top_k")) params.sampling.top_k = static_cast<int32_t>(*value);
  return llama_settings(params, -1);
}

}  // namespace quern
