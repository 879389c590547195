// Tokenizers from vocab.json and merges.txt, as models before tokenizer.json have them. What those files do not say is
// what the class does that tokenizer_config.json names; a tokenizer.json is written of it all and read.
#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <map>

#include "text/pattern/scanners.h"
#include "text/tokenizer.h"

namespace quern {
namespace {

/// What a class of `transformers` adds to its files.
struct Class {
  std::string_view name;  // without "Tokenizer" and "Fast"
  std::string_view normalizer, pre_tokenizer, special;
  bool frame = false;  // <s> before and </s> behind, two of these between two texts
};

constexpr std::string_view of_gpt2 =
    R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";
constexpr std::string_view of_qwen2 = "";  // its pattern

constexpr Class classes[] = {
    {"GPT2", "null", of_gpt2, "<|endoftext|>"},
    {"Qwen2", R"({"type":"NFC"})", of_qwen2, "<|endoftext|>"},
    {"Roberta", "null", of_gpt2, "<s> <pad> </s> <unk> <mask>", true},
};

Result<const Class*> class_of(const Json& config) {
  const std::string named = config.string("tokenizer_class").value_or("GPT2Tokenizer");
  std::string name = named;
  for (const std::string_view ending : {"Fast", "Tokenizer"}) {
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  }
  const auto* const found = std::ranges::find(classes, name, &Class::name);
  if (found != std::end(classes)) return found;
  return Error{fmt::format("what {} does with vocab.json and merges.txt is not known; give a tokenizer.json", named)};
}

std::string pre_tokenizer_of(const Class& kind) {
  if (!kind.pre_tokenizer.empty()) return std::string(kind.pre_tokenizer);
  Json split;
  split.set("type", "Split").set("behavior", "Isolated").set("pattern", Json().set("Regex", qwen2_pattern));
  Json bytes;
  bytes.set("type", "ByteLevel").set("add_prefix_space", false).set("trim_offsets", true).set("use_regex", false);
  Json both;
  both.set("type", "Sequence").set("pretokenizers", Json::Array{std::move(split), std::move(bytes)});
  return both.dump();
}

/// The lines of merges.txt as a list of strings.
std::string merges_of(std::string_view text) {
  std::string out = "[";
  bool first_line = true;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool says_version = first_line && line.starts_with("#version");
    first_line = false;
    if (line.empty() || says_version) continue;
    if (out.size() > 1) out += ',';
    out += Json(line).dump();
  }
  return out + "]";
}

/// The added tokens, by id: what tokenizer_config.json lists, and those of the class that the vocabulary has.
Json::Array added_tokens(const Class& kind, const Json& config, const Json& vocabulary) {
  std::map<int64_t, Json> by_id;
  for (std::string_view rest = kind.special; !rest.empty();) {
    const std::string_view content = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), content.size() + 1));
    const std::optional<int64_t> id = vocabulary.integer(content);
    if (!id) continue;
    Json token;
    token.set("id", *id).set("content", content).set("special", true);
    by_id[*id] = token.set("normalized", false);
  }
  const Json* listed = config.present("added_tokens_decoder");
  for (const auto& [key, token] : listed != nullptr && listed->is_object() ? listed->members() : Json::Object()) {
    int64_t id = -1;
    std::from_chars(key.data(), key.data() + key.size(), id);
    Json copy = token;
    by_id[id] = copy.set("id", id);
  }
  Json::Array list;
  for (auto& [id, token] : by_id) list.push_back(std::move(token));
  return list;
}

std::string frame_of(const Class& kind, const Json& vocabulary) {
  const std::optional<int64_t> begin = vocabulary.integer("<s>");
  const std::optional<int64_t> end = vocabulary.integer("</s>");
  if (!kind.frame || !begin || !end) return "null";
  return fmt::format(R"({{"type":"RobertaProcessing","sep":["</s>",{}],"cls":["<s>",{}],"trim_offsets":true,)"
                     R"("add_prefix_space":false}})",
                     *end, *begin);
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_merges(std::string_view vocab_json,
                                                                std::string_view merges_txt, const Json& config) {
  ASSIGN_OR_RETURN(const Class* kind, class_of(config));
  ASSIGN_OR_RETURN(const Json vocabulary, Json::parse(vocab_json));
  if (!vocabulary.is_object()) return Error{"vocab.json is no object of tokens and their ids"};
  const std::string text = fmt::format(
      R"({{"added_tokens":{},"normalizer":{},"pre_tokenizer":{},"post_processor":{},"decoder":{{"type":"ByteLevel"}},)"
      R"("model":{{"type":"BPE","vocab":{},"merges":{}}}}})",
      Json(added_tokens(*kind, config, vocabulary)).dump(), kind->normalizer, pre_tokenizer_of(*kind),
      frame_of(*kind, vocabulary), vocab_json, merges_of(merges_txt));
  return from_json(text, config);
}

}  // namespace quern
