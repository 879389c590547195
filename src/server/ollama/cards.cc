#include "server/ollama/cards.h"

#include <array>
#include <fmt/format.h>
#include <openssl/sha.h>
#include <utility>

#include "server/llama/peer.h"
#include "server/ollama/names.h"
#include "server/openai/fill_in.h"

namespace quern {
namespace {

constexpr int64_t kForeverUs = int64_t{200} * 365 * 86'400 * 1'000'000;

/// 64 hexadecimal digits. Files that were not hashed get those of their name: clients want some.
std::string digest_of(std::string_view name, const StoredModel& model) {
  const std::string_view known = model.digest;
  if (known.starts_with("sha256:") && known.size() == 71) return std::string(known.substr(7));
  std::array<unsigned char, SHA256_DIGEST_LENGTH> bytes{};
  SHA256(reinterpret_cast<const unsigned char*>(name.data()), name.size(), bytes.data());
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

Json details_json(const StoredModel& model) {
  Json families(Json::Array{});
  if (!model.family.empty()) families.items().emplace_back(model.family);
  Json details;
  details.set("parent_model", "").set("format", model.format).set("family", model.family);
  details.set("families", std::move(families)).set("parameter_size", model.parameter_size);
  details.set("quantization_level", model.quantization);
  if (model.context_length > 0) details.set("context_length", model.context_length);
  if (model.embedding_length > 0) details.set("embedding_length", model.embedding_length);
  return details;
}

Json capabilities_json(const std::vector<std::string>& capabilities) {
  Json list(Json::Array{});
  for (const std::string& one : capabilities) list.items().emplace_back(one);
  return list;
}

std::string modified(const StoredModel& model, int64_t started_us) {
  return time_text(model.modified_s > 0 ? model.modified_s * 1'000'000 : started_us);
}

/// Keys as GGUF files have them, whatever kind of file the model comes from.
Json model_info(const ModelDetails& details) {
  static constexpr std::pair<std::string_view, std::string_view> keys[] = {
      {"num_hidden_layers", "block_count"},
      {"hidden_size", "embedding_length"},
      {"intermediate_size", "feed_forward_length"},
      {"num_attention_heads", "attention.head_count"},
      {"num_key_value_heads", "attention.head_count_kv"},
      {"vocab_size", "vocab_size"},
      {"rope_theta", "rope.freq_base"}};
  const std::string& family = details.model.family;
  Json info;
  info.set("general.architecture", family);
  if (details.model.parameters > 0) info.set("general.parameter_count", details.model.parameters);
  if (details.model.context_length > 0) info.set(family + ".context_length", details.model.context_length);
  if (details.model.embedding_length > 0) info.set(family + ".embedding_length", details.model.embedding_length);
  if (!details.config.is_object()) return info;
  if (details.config.has("general.architecture")) {
    for (const auto& [key, value] : details.config.members()) info.set(key, value);
  } else {
    for (const auto& [key, name] : keys) {
      if (const Json* value = details.config.present(key)) info.set(fmt::format("{}.{}", family, name), *value);
    }
  }
  return info;
}

}  // namespace

ServedCard card_of(const TextModel& model) {
  const ServerOptions& options = model.options;
  ServedCard card;
  card.names = options.model_names;
  card.details = options.details;
  card.memory_bytes = options.memory_bytes;
  card.gpu_bytes = options.gpu_bytes;
  card.context_length = options.max_model_len;
  if (model.chat_template) card.details.chat_template = model.chat_template->source();
  std::vector<std::string>& can = card.details.capabilities;
  can.clear();
  if (options.output == OutputKind::pooled) can.emplace_back("embedding");
  if (options.output != OutputKind::tokens) return card;
  can.emplace_back("completion");
  if (options.reply_format.dialect() != nullptr && model.calls.tools) can.emplace_back("tools");
  if (middle_marks(*model.tokenizer)) can.emplace_back("insert");
  if (options.reply_format.separates_reasoning()) can.emplace_back("thinking");
  const SamplingParams& sampling = options.defaults.sampling;
  const auto add = [&](std::string_view name, double value, double neutral) {
    if (value != neutral) card.parameters += fmt::format("{:<30} {:.6g}\n", name, value);
  };
  add("temperature", static_cast<double>(sampling.temperature), 1);
  add("top_k", sampling.top_k, 0);
  add("top_p", static_cast<double>(sampling.top_p), 1);
  add("min_p", static_cast<double>(sampling.min_p), 0);
  add("repeat_penalty", static_cast<double>(sampling.repetition_penalty), 1);
  if (!card.parameters.empty()) card.parameters.pop_back();
  return card;
}

Json tag_json(std::string_view name, const StoredModel& model, const std::vector<std::string>& capabilities,
              int64_t started_us) {
  Json tag;
  tag.set("name", tagged(name)).set("model", tagged(name)).set("modified_at", modified(model, started_us));
  tag.set("size", model.bytes).set("digest", digest_of(name, model)).set("details", details_json(model));
  if (!capabilities.empty()) tag.set("capabilities", capabilities_json(capabilities));
  return tag;
}

Json running_json(const std::string& name, const ServedCard& card) {
  Json one;
  one.set("name", tagged(name)).set("model", tagged(name)).set("size", card.memory_bytes);
  one.set("digest", digest_of(name, card.details.model)).set("details", details_json(card.details.model));
  one.set("expires_at", time_text(card.expires_us.value_or(unix_time_us() + kForeverUs)));
  one.set("size_vram", card.gpu_bytes).set("context_length", int64_t{card.context_length});
  return one;
}

Json show_json(const std::string& name, const ModelDetails& details, const std::string& parameters,
               int64_t started_us) {
  Json shown;
  if (!details.license.empty()) shown.set("license", details.license);
  shown.set("modelfile", fmt::format("FROM {}\n", details.model.path.empty() ? name : details.model.path));
  if (!parameters.empty()) shown.set("parameters", parameters);
  if (!details.chat_template.empty()) shown.set("template", details.chat_template);
  shown.set("details", details_json(details.model)).set("model_info", model_info(details));
  shown.set("capabilities", capabilities_json(details.capabilities));
  shown.set("modified_at", modified(details.model, started_us));
  return shown;
}

}  // namespace quern
