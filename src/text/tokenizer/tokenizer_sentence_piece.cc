// Tokenizers from SentencePiece models (tokenizer.model), for directories without a tokenizer.json.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "text/subword/bpe.h"
#include "text/subword/unigram.h"
#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/sentence_piece_file.h"
#include "text/tokenizer/sentence_piece_normalize.h"

namespace quern {
namespace {

using Type = SentencePieceFile::Type;

/// Tokens that tokenizer_config.json adds: "added_tokens_decoder": {"32000": {"content": ...}}.
Result<std::vector<AddedToken>> configured_tokens(const Json& config, size_t pieces) {
  std::vector<AddedToken> tokens;
  const Json* list = config.find("added_tokens_decoder");
  if (list == nullptr || !list->is_object()) return tokens;
  for (const auto& [key, item] : list->members()) {
    AddedToken token;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    const auto limit = static_cast<int64_t>(pieces + list->members().size());
    if (error != std::errc() || end != key.data() + key.size() || token.id < 0 || token.id >= limit) {
      return Error{fmt::format("tokenizer_config.json: added token \"{}\" is no id below {}", key, limit)};
    }
    token.content = item.string("content").value_or("");
    token.single_word = item.boolean("single_word").value_or(false);
    token.lstrip = item.boolean("lstrip").value_or(false);
    token.rstrip = item.boolean("rstrip").value_or(false);
    token.special = item.boolean("special").value_or(false);
    if (!token.content.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

class Builder {
 public:
  Builder(const SentencePieceFile& file, const Json& config) : file_(file), config_(config) {}

  Result<std::shared_ptr<const Tokenizer>> run() {
    if (file_.algorithm != SentencePieceFile::Algorithm::unigram &&
        file_.algorithm != SentencePieceFile::Algorithm::bpe) {
      return Error{"the SentencePiece model splits into words or characters, which is not supported"};
    }
    if (file_.pieces.size() > static_cast<size_t>(max_token_id))
      return Error{"the SentencePiece model has too many pieces"};
    for (size_t id = 0; id < file_.pieces.size(); ++id) {
      if (std::isfinite(file_.pieces[id].score)) continue;
      return Error{fmt::format("piece {} of the SentencePiece model has the score {}", id, file_.pieces[id].score)};
    }
    ASSIGN_OR_RETURN(parts_.added, configured_tokens(config_, file_.pieces.size()));
    TRY(set_normalizer());
    TRY(set_vocabulary());
    for (size_t id = 0; id < file_.pieces.size(); ++id) add_control(id);
    TRY(file_.algorithm == SentencePieceFile::Algorithm::bpe ? set_bpe() : set_unigram());
    set_frame();
    return make_pipeline(std::move(parts_));
  }

 private:
  std::optional<int32_t> find(Type type, std::string_view text = {}) const {
    const auto found = std::ranges::find_if(file_.pieces, [&](const SentencePieceFile::Piece& piece) {
      return piece.type == type && (text.empty() || piece.text == text);
    });
    if (found == file_.pieces.end()) return std::nullopt;
    return static_cast<int32_t>(found - file_.pieces.begin());
  }

  Status set_normalizer() {
    SentencePieceRules rules;
    if (!file_.charsmap.empty()) {
      ASSIGN_OR_RETURN(rules.charsmap, Charsmap::make(file_.charsmap));
    }
    for (const auto& piece : file_.pieces) {
      if (piece.type == Type::user_defined) rules.kept.push_back(piece.text);
    }
    rules.add_prefix = file_.add_prefix;
    rules.remove_extra_spaces = file_.remove_extra_spaces;
    rules.escape_spaces = file_.escape_spaces;
    parts_.stays_at_start = file_.remove_extra_spaces;
    rules.spaces_follow_words = file_.spaces_follow_words;
    ASSIGN_OR_RETURN(auto normalization, sentence_piece_normalization(std::move(rules)));
    parts_.normalizer.add(std::move(normalization));
    return {};
  }

  Status set_vocabulary() {
    Json::Array decoders;
    const auto part = [](std::string_view type, Json::Object members) {
      members.insert(members.begin(), {"type", Json(type)});
      return Json(std::move(members));
    };
    decoders.push_back(
        part("Replace", {{"pattern", Json(Json::Object{{"String", Json("\u2581")}})}, {"content", Json(" ")}}));
    decoders.push_back(part("ByteFallback", {}));
    decoders.push_back(part("Fuse", {}));
    const bool strip = file_.add_prefix || file_.remove_extra_spaces;
    if (strip) decoders.push_back(part("Strip", {{"content", Json(" ")}, {"start", Json(1)}, {"stop", Json(0)}}));
    const Json decoder = part("Sequence", {{"decoders", Json(std::move(decoders))}});
    ASSIGN_OR_RETURN(parts_.decoder, TokenDecoder::from_json(&decoder));

    size_t count = file_.pieces.size();
    for (const AddedToken& token : parts_.added) count = std::max(count, static_cast<size_t>(token.id) + 1);
    std::vector<TokenEntry> entries(count);
    for (size_t id = 0; id < file_.pieces.size(); ++id) {
      const auto& [text, score, type] = file_.pieces[id];
      const bool found = type == Type::normal || type == Type::user_defined;
      entries[id] = {text, found, type == Type::control, type == Type::control || type == Type::unknown, {}};
      if (type == Type::unknown) entries[id].decoded = file_.unknown_surface;
    }
    for (const AddedToken& token : parts_.added) {
      TokenEntry& entry = entries[static_cast<size_t>(token.id)];
      entry = {token.content, false, token.special, true, {}};
    }
    ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::make(entries, parts_.decoder, false));
    parts_.vocabulary = std::make_unique<const Vocabulary>(std::move(vocabulary));
    return {};
  }

  /// Control tokens and the unknown one are found in trusted text.
  void add_control(size_t id) {
    const auto& [text, score, type] = file_.pieces[id];
    const bool known = std::ranges::find(parts_.added, static_cast<int32_t>(id), &AddedToken::id) != parts_.added.end();
    if (known || (type != Type::control && type != Type::unknown)) return;
    AddedToken token;
    token.id = static_cast<int32_t>(id);
    token.content = text;
    token.special = true;
    parts_.added.push_back(std::move(token));
  }

  Status set_bpe() {
    BpeOptions options;
    options.unknown = find(Type::unknown).value_or(-1);
    options.byte_fallback = file_.byte_fallback;
    options.fuse_unknown = true;
    std::vector<Trie::Key> keys;
    std::vector<float> scores(static_cast<size_t>(parts_.vocabulary->size()));
    for (size_t id = 0; id < file_.pieces.size(); ++id) {
      scores[id] = file_.pieces[id].score;
      if (file_.pieces[id].type != Type::user_defined) continue;
      keys.push_back({file_.pieces[id].text, static_cast<int32_t>(id)});
    }
    if (!keys.empty()) {
      ASSIGN_OR_RETURN(options.whole, Trie::make(std::move(keys)));
    }
    parts_.model = std::make_unique<Bpe>(*parts_.vocabulary, options, scores);
    parts_.description = fmt::format("SentencePiece BPE, {} tokens", parts_.vocabulary->size());
    return {};
  }

  Status set_unigram() {
    float lowest = std::numeric_limits<float>::max();
    float highest = std::numeric_limits<float>::lowest();
    for (const auto& piece : file_.pieces) {
      if (piece.type != Type::normal) continue;
      lowest = std::min(lowest, piece.score);
      highest = std::max(highest, piece.score);
    }
    std::vector<double> scores;
    for (const auto& piece : file_.pieces) {
      // A token that the user defined wins over any split of it.
      const double bonus = static_cast<double>(piece.text.size()) * static_cast<double>(highest) - 0.1;
      scores.push_back(piece.type == Type::user_defined ? bonus : static_cast<double>(piece.score));
    }
    constexpr float unknown_penalty = 10.0F;
    UnigramOptions options;
    options.unknown = find(Type::unknown).value_or(-1);
    options.unknown_score = lowest - unknown_penalty;
    options.byte_fallback = file_.byte_fallback;
    options.single_precision = true;
    options.whole_texts = true;
    ASSIGN_OR_RETURN(parts_.model, Unigram::make(*parts_.vocabulary, options, std::move(scores)));
    parts_.description = fmt::format("SentencePiece Unigram, {} tokens", parts_.vocabulary->size());
    return {};
  }

  /// As the classes of `transformers` do: BOS unless the configuration says no, EOS for T5.
  void set_frame() {
    const auto configured = [this](std::string_view name) -> std::optional<int32_t> {
      const Json* value = config_.find(name);
      const std::optional<std::string> text = value == nullptr     ? std::nullopt
                                              : value->is_string() ? std::optional(value->as_string())
                                                                   : value->string("content");
      const int32_t id = text ? parts_.vocabulary->find_text(*text) : -1;
      return id >= 0 ? std::optional(id) : std::nullopt;
    };
    parts_.bos = configured("bos_token");
    parts_.eos = configured("eos_token");
    if (!parts_.bos) parts_.bos = find(Type::control, file_.bos_piece);
    if (!parts_.eos) parts_.eos = find(Type::control, file_.eos_piece);
    const bool t5 = config_.string("tokenizer_class").value_or("").starts_with("T5");
    if (parts_.bos && config_.boolean("add_bos_token").value_or(!t5)) parts_.frame.before = {*parts_.bos};
    if (parts_.eos && config_.boolean("add_eos_token").value_or(t5)) parts_.frame.after = {*parts_.eos};
  }

  const SentencePieceFile& file_;
  const Json& config_;
  PipelineParts parts_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_sentence_piece(std::string_view model, const Json& config) {
  ASSIGN_OR_RETURN(const SentencePieceFile file, read_sentence_piece_file(model));
  return Builder(file, config).run();
}

}  // namespace quern
