#include "server/llama/peer.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fmt/format.h>
#include <limits>

namespace quern {
namespace {

constexpr size_t kMaxStops = 64;
constexpr size_t kMaxStopBytes = 4096;

/// Nothing in the model's files says how to sample.
bool says_nothing(const SamplingParams& given) {
  return given.temperature == 1.0F && given.top_p == 1.0F && given.min_p == 0.0F && given.top_k == 0 &&
         given.repetition_penalty == 1.0F;
}

/// An error that says which field can be smaller.
ApiError named_by_peer(ApiError error, std::string_view name) {
  constexpr std::string_view of_chat = "with max_tokens";
  const size_t at = error.message.find(of_chat);
  if (at != std::string::npos) error.message.replace(at, of_chat.size(), fmt::format("with {}", name));
  return error;
}

}  // namespace

std::optional<int32_t> read_peer_tokens(Fields& fields, std::string_view name) {
  const auto asked = fields.integer(name, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
  return asked && *asked >= 0 ? std::optional(static_cast<int32_t>(*asked)) : std::nullopt;
}

std::vector<std::string> read_peer_stops(Fields& fields, std::string_view name) {
  if (fields.describing()) fields.one_of(name, {Fields::Kind::string, Fields::Kind::array});
  const Json* value = fields.any(name);
  if (value == nullptr) return {};
  std::vector<std::string> stops;
  const auto add = [&](const Json& item) {
    if (!item.is_string()) return fields.wrong_kind(name, "strings", item);
    if (item.as_string().size() > kMaxStopBytes || stops.size() == kMaxStops) {
      return fields.invalid(name, "invalid_value",
                            fmt::format("Invalid '{}': at most {} stop strings of at most {} bytes.",
                                        fields.full_name(name), kMaxStops, kMaxStopBytes));
    }
    if (!item.as_string().empty()) stops.push_back(item.as_string());
  };
  if (value->is_array()) {
    for (const Json& item : value->items()) add(item);
  } else {
    add(*value);
  }
  return stops;
}

void add_peer_defaults(const PeerDefaults& defaults, const ServerOptions& options, Json& body) {
  if (!says_nothing(options.defaults.sampling)) return;
  const auto add = [&](std::string_view name, Json value) {
    if (body.present(name) == nullptr) body.set(name, std::move(value));
  };
  add("temperature", defaults.temperature);
  add("top_k", defaults.top_k);
  add("top_p", defaults.top_p);
  add("min_p", defaults.min_p);
}

Checked<std::vector<int32_t>> encode_prompt(const TextModel& model, std::span<const TextPiece> pieces,
                                            bool add_special) {
  size_t bytes = 0;
  for (const TextPiece& piece : pieces) bytes += piece.text.size();
  if (auto error = check_text_size(model, bytes, {}, "prompt")) return *error;
  auto ids = model.tokenizer->encode_pieces(pieces, add_special);
  if (!ids.ok()) return ApiError{400, ids.error().message, "invalid_value", "prompt"};
  return std::move(ids).value();
}

Json ids_json(std::span<const int32_t> ids) {
  Json list(Json::Array{});
  for (const int32_t id : ids) list.items().emplace_back(int64_t{id});
  return list;
}

Checked<Generation> read_peer_completion(const Json& body, PeerLimits limits, const TextModel& model) {
  ASSIGN_OR_RETURN(Generation generation, read_completion(body, model));
  generation.params.stops = std::move(limits.stops);
  generation.params.max_tokens = limits.max_tokens;
  for (Prompt& prompt : generation.prompts) {
    const auto left = model.options.max_model_len - static_cast<int32_t>(prompt.tokens.size());
    prompt.max_tokens = std::min(limits.max_tokens.value_or(left), left);
  }
  return generation;
}

Checked<Generation> read_peer_chat(Json body, PeerLimits limits, const TextModel& model) {
  if (limits.max_tokens) body.set("max_tokens", int64_t{std::max(1, *limits.max_tokens)});
  Checked<Generation> read = read_chat(body, model);
  if (!read.ok()) return named_by_peer(std::move(read).error(), limits.name);
  Generation generation = std::move(read).value();
  generation.params.stops = std::move(limits.stops);
  if (limits.max_tokens == 0) generation.params.max_tokens = generation.prompts.front().max_tokens = 0;
  return generation;
}

std::string time_text(int64_t unix_us) {
  const std::time_t seconds = unix_us / 1'000'000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, unix_us % 1'000'000);
}

int64_t unix_time_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

}  // namespace quern
