// Tokenizers from Mistral's tekken.json: special tokens, then byte strings in the order in which they merge.
#include <algorithm>
#include <fmt/format.h>
#include <unordered_set>

#include "text/subword/bpe.h"
#include "text/subword/byte_alphabet.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/pipeline.h"

namespace quern {
namespace {

constexpr int64_t most_special = 1 << 14;

/// Of files that do not list their special tokens.
constexpr std::string_view older_special_tokens[] = {"<unk>",
                                                     "<s>",
                                                     "</s>",
                                                     "[INST]",
                                                     "[/INST]",
                                                     "[AVAILABLE_TOOLS]",
                                                     "[/AVAILABLE_TOOLS]",
                                                     "[TOOL_RESULTS]",
                                                     "[/TOOL_RESULTS]",
                                                     "[TOOL_CALLS]",
                                                     "[IMG]",
                                                     "<pad>",
                                                     "[IMG_BREAK]",
                                                     "[IMG_END]",
                                                     "[PREFIX]",
                                                     "[MIDDLE]",
                                                     "[SUFFIX]",
                                                     "[SYSTEM_PROMPT]",
                                                     "[/SYSTEM_PROMPT]",
                                                     "[TOOL_CONTENT]"};

class TekkenFile {
 public:
  explicit TekkenFile(const Json& json) : json_(json) {}

  Result<std::shared_ptr<const Tokenizer>> run() {
    TRY(read_sizes());
    TRY(read_special());
    TRY(read_vocabulary());
    const Json decoder = Json::parse(R"({"type":"ByteLevel"})").value();
    ASSIGN_OR_RETURN(parts_.decoder, TokenDecoder::from_json(&decoder));
    ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::make(entries(), parts_.decoder, true));
    parts_.vocabulary = std::make_unique<const Vocabulary>(std::move(vocabulary));
    TRY(set_model());
    parts_.bos = find("<s>");
    parts_.eos = find("</s>");
    if (parts_.bos) parts_.frame.before = {*parts_.bos};
    parts_.description = fmt::format("byte-level BPE, tekken, {} tokens", texts_.size());
    return make_pipeline(std::move(parts_));
  }

 private:
  Status read_sizes() {
    const Json* config = json_.find("config");
    if (config == nullptr || !config->is_object()) return Error{"there is no \"config\""};
    const std::optional<int64_t> size = config->integer("default_vocab_size");
    const std::optional<int64_t> special = config->integer("default_num_special_tokens");
    const std::optional<std::string> pattern = config->string("pattern");
    if (!size || !special || !pattern || *special < 0 || *special > most_special || *size <= *special + 255 ||
        *size > max_token_id) {
      return Error{"\"config\" must have a pattern, and sizes of the vocabulary and of its special tokens that fit"};
    }
    const Json* list = json_.find("vocab");
    if (list == nullptr || !list->is_array() || static_cast<int64_t>(list->items().size()) < *size - *special) {
      return Error{fmt::format("\"vocab\" must be a list of at least {} tokens", *size - *special)};
    }
    texts_.resize(static_cast<size_t>(*size));
    special_ = static_cast<size_t>(*special);
    pattern_ = *pattern;
    return {};
  }

  Status read_special() {
    const Json* list = json_.present("special_tokens");
    for (size_t i = 0; list == nullptr && i < std::min(special_, std::size(older_special_tokens)); ++i) {
      texts_[i] = older_special_tokens[i];
    }
    if (list != nullptr && !list->is_array()) return Error{"\"special_tokens\" is no list"};
    for (const Json& token : list == nullptr ? Json::Array() : list->items()) {
      const std::optional<int64_t> rank = token.integer("rank");
      const std::optional<std::string> text = token.string("token_str");
      if (!rank || *rank < 0 || static_cast<size_t>(*rank) >= special_ || !text || text->empty()) {
        return Error{"\"special_tokens\" has one without a rank that fits or without a text"};
      }
      texts_[static_cast<size_t>(*rank)] = *text;
    }
    std::unordered_set<std::string_view> seen;
    for (size_t id = 0; id < special_; ++id) {
      if (texts_[id].empty()) texts_[id] = fmt::format("<SPECIAL_{}>", id);
      if (!seen.insert(texts_[id]).second)
        return Error{fmt::format("the special token \"{}\" is there twice", texts_[id])};
      parts_.added.push_back({.id = static_cast<int32_t>(id), .content = texts_[id], .special = true});
    }
    return {};
  }

  /// The file may have more than are used.
  Status read_vocabulary() {
    const Json::Array& list = json_.find("vocab")->items();
    for (size_t i = 0; special_ + i < texts_.size(); ++i) {
      const Json& token = list[i];
      const Result<std::string> bytes = decode_base64(token.string("token_bytes").value_or(""));
      if (token.integer("rank") != static_cast<int64_t>(i) || !bytes.ok() || bytes->empty()) {
        return Error{fmt::format("token {} of \"vocab\" has another rank, or no token_bytes in base64", i)};
      }
      append_as_characters(texts_[special_ + i], *bytes);
    }
    return {};
  }

  std::vector<TokenEntry> entries() const {
    std::vector<TokenEntry> made;
    for (size_t id = 0; id < texts_.size(); ++id) {
      const bool special = id < special_;
      made.push_back({texts_[id], !special, special, special, {}});
    }
    return made;
  }

  /// The pair merges first whose bytes come first in the file; a piece that is there as a whole is that token.
  Status set_model() {
    Json split;
    split.set("type", "Split").set("behavior", "Isolated").set("pattern", Json().set("Regex", pattern_));
    Json bytes;
    bytes.set("type", "ByteLevel").set("add_prefix_space", false).set("use_regex", false);
    Json both;
    both.set("type", "Sequence").set("pretokenizers", Json::Array{std::move(split), std::move(bytes)});
    ASSIGN_OR_RETURN(parts_.pre_tokenizer, PreTokenizer::from_json(&both));
    std::vector<float> scores(texts_.size());
    for (size_t id = 0; id < scores.size(); ++id) scores[id] = -static_cast<float>(id);
    BpeOptions options;
    options.ignore_merges = true;
    parts_.model = std::make_unique<Bpe>(*parts_.vocabulary, options, scores);
    return {};
  }

  std::optional<int32_t> find(std::string_view text) const {
    const auto found = std::find(texts_.begin(), texts_.begin() + static_cast<std::ptrdiff_t>(special_), text);
    const auto id = static_cast<size_t>(found - texts_.begin());
    return id < special_ ? std::optional(static_cast<int32_t>(id)) : std::nullopt;
  }

  const Json& json_;
  std::vector<std::string> texts_;  // by id; the bytes of those that are not special in the byte alphabet
  size_t special_ = 0;              // as many, in front
  std::string pattern_;
  PipelineParts parts_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_tekken(std::string_view tekken_json) {
  ASSIGN_OR_RETURN(const Json json, Json::parse(tekken_json));
  return TekkenFile(json).run();
}

}  // namespace quern
