// Tokenizers from GGUF metadata.
#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <limits>

#include "text/pattern/gguf_patterns.h"
#include "text/pattern/unicode.h"
#include "text/subword/bpe.h"
#include "text/subword/unigram.h"
#include "text/subword/word_models.h"
#include "text/tokenizer/decode.h"
#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/sentence_piece_normalize.h"

namespace quern {
namespace {

enum Type : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

Json typed(std::string_view type, Json::Object members = {}) {
  members.insert(members.begin(), {"type", Json(type)});
  return Json(std::move(members));
}

Json sequence(std::string_view members_name, Json::Array members) {
  return typed("Sequence", {{std::string(members_name), Json(std::move(members))}});
}

Json replace(std::string_view from, std::string_view to) {
  return typed("Replace", {{"pattern", Json(Json::Object{{"String", Json(from)}})}, {"content", Json(to)}});
}

struct Tokens;

/// A value of tokenizer.ggml.model.
struct Kind {
  std::string_view name;
  Status (*fill)(PipelineParts& parts, Tokens& tokens);
};

/// nullptr when the model is not known.
const Kind* find_kind(std::string_view model);

/// The texts and types of a file's tokens, checked.
struct Tokens {
  explicit Tokens(const GgufVocabulary& vocabulary) : source(vocabulary) {}

  int32_t type(size_t id) const {
    const auto is = [id](std::optional<int32_t> special) { return special && static_cast<size_t>(*special) == id; };
    if (is(source.bos) || is(source.eos) || is(source.eot) || is(source.eom)) return control;
    if (is(source.separator) || is(source.cls) || is(source.mask)) return control;
    if (is(source.fim_prefix) || is(source.fim_suffix) || is(source.fim_middle)) return control;
    if (!source.types.empty()) return source.types[id];
    return is(source.unknown) ? unknown : byte_of_token(source.tokens[id]) >= 0 ? byte : normal;
  }

  std::vector<TokenEntry> entries() {
    std::vector<TokenEntry> made(source.tokens.size());
    for (size_t id = 0; id < made.size(); ++id) {
      const int32_t kind = type(id);
      const bool special = kind == control || kind == unknown;
      made[id] = {source.tokens[id], !special && kind != byte, special, special || kind == user_defined, {}};
      if (is_utf8(made[id].text)) continue;
      made[id].text = repaired.emplace_back(repair_utf8(made[id].text));
      made[id].in_model = false;
    }
    return made;
  }

  std::vector<AddedToken> added() const {
    std::vector<AddedToken> tokens;
    for (size_t id = 0; id < source.tokens.size(); ++id) {
      const int32_t kind = type(id);
      if (kind != control && kind != unknown && kind != user_defined) continue;
      if (!is_utf8(source.tokens[id])) continue;
      AddedToken token;
      token.id = static_cast<int32_t>(id);
      token.content = source.tokens[id];
      token.special = kind != user_defined;
      set_spaces(token);
      tokens.push_back(std::move(token));
    }
    return tokens;
  }

  /// The texts of the tokens that users may add.
  std::vector<std::string> user_defined_texts() const {
    std::vector<std::string> texts;
    for (size_t id = 0; id < source.tokens.size(); ++id) {
      if (type(id) == user_defined && is_utf8(source.tokens[id])) texts.push_back(source.tokens[id]);
    }
    return texts;
  }

  const GgufVocabulary& source;
  std::deque<std::string> repaired;

 private:
  /// GGUF does not say which tokens take whitespace along; these models' original files do.
  void set_spaces(AddedToken& token) const {
    const bool roberta = source.model == "t5" || source.pre.starts_with("jina-v2-");
    token.lstrip = (roberta && token.content == "<mask>") || (source.pre == "modern-bert" && token.content == "[MASK]");
    if (!source.is_phi_3 || !token.special) return;
    token.rstrip = token.content != "<unk>" && token.content != "<s>" && token.content != "<|endoftext|>";
  }
};

Status check(const GgufVocabulary& vocabulary) {
  const size_t count = vocabulary.tokens.size();
  if (find_kind(vocabulary.model) == nullptr) {
    return Error{fmt::format("tokenizer.ggml.model \"{}\" is not supported", vocabulary.model)};
  }
  if (count == 0) return Error{"tokenizer.ggml.tokens is empty or missing"};
  if (count > static_cast<size_t>(max_token_id))
    return Error{fmt::format("tokenizer.ggml.tokens has {} tokens", count)};
  if (!vocabulary.types.empty() && vocabulary.types.size() != count) {
    return Error{fmt::format("tokenizer.ggml.token_type has {} entries for {} tokens", vocabulary.types.size(), count)};
  }
  const bool scored = vocabulary.model == "llama" || vocabulary.model == "t5";
  if (scored && vocabulary.scores.size() != count) {
    return Error{fmt::format("tokenizer.ggml.scores has {} entries for {} tokens", vocabulary.scores.size(), count)};
  }
  const bool merged = vocabulary.model == "gpt2" || vocabulary.model == "gemma4";
  if (merged && vocabulary.merges.empty() && vocabulary.pre != "kimi-k2")
    return Error{"tokenizer.ggml.merges is empty or missing"};
  const std::pair<std::string_view, std::optional<int32_t>> ids[] = {{"bos", vocabulary.bos},
                                                                     {"eos", vocabulary.eos},
                                                                     {"eot", vocabulary.eot},
                                                                     {"eom", vocabulary.eom},
                                                                     {"unknown", vocabulary.unknown},
                                                                     {"padding", vocabulary.padding},
                                                                     {"cls", vocabulary.cls},
                                                                     {"mask", vocabulary.mask},
                                                                     {"seperator", vocabulary.separator},
                                                                     {"fim_pre", vocabulary.fim_prefix},
                                                                     {"fim_suf", vocabulary.fim_suffix},
                                                                     {"fim_mid", vocabulary.fim_middle}};
  for (const auto& [name, id] : ids) {
    if (id && (*id < 0 || static_cast<size_t>(*id) >= count)) {
      return Error{fmt::format("tokenizer.ggml.{}_token_id is {}, but there are {} tokens", name, *id, count)};
    }
  }
  return {};
}

/// Sets the decoder and the vocabulary.
Status set_vocabulary(PipelineParts& parts, Tokens& tokens, const Json& decoder, bool byte_level) {
  ASSIGN_OR_RETURN(parts.decoder, TokenDecoder::from_json(&decoder));
  ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::make(tokens.entries(), parts.decoder, byte_level));
  parts.vocabulary = std::make_unique<const Vocabulary>(std::move(vocabulary));
  return {};
}

/// The decoder of SentencePiece. With `strip` the first space of a text goes.
Json sentence_piece_decoder(bool strip) {
  Json::Array decoders{replace("\u2581", " "), typed("ByteFallback"), typed("Fuse")};
  if (strip) decoders.push_back(typed("Strip", {{"content", Json(" ")}, {"start", Json(1)}, {"stop", Json(0)}}));
  return sequence("decoders", std::move(decoders));
}

std::optional<int32_t> id_or(const PipelineParts& parts, std::optional<int32_t> id, int32_t fallback) {
  return id ? id : parts.vocabulary->contains(fallback) ? std::optional(fallback) : std::nullopt;
}

/// Cuts by the patterns of `pre`, then bytes or characters as the model wants them.
Status set_cuts(PipelineParts& parts, const GgufPreTokenizer& pre, bool lowercase) {
  Json::Array cuts;
  for (const std::string_view pattern : pre.patterns) {
    cuts.push_back(typed("Split", {{"pattern", Json(Json::Object{{"Regex", Json(pattern)}})}}));
  }
  if (pre.drop_spaces) cuts.push_back(typed("WhitespaceSplit"));
  if (!pre.characters)
    cuts.push_back(typed("ByteLevel", {{"add_prefix_space", Json(false)}, {"use_regex", Json(false)}}));
  const Json pre_tokenizer = sequence("pretokenizers", std::move(cuts));
  ASSIGN_OR_RETURN(parts.pre_tokenizer, PreTokenizer::from_json(&pre_tokenizer));
  Json::Array changes;
  if (pre.escape_spaces) changes.push_back(replace(" ", "\u2581"));
  if (lowercase) changes.push_back(typed("Lowercase"));
  const Json normalizer = sequence("normalizers", std::move(changes));
  ASSIGN_OR_RETURN(parts.normalizer, Normalizer::from_json(&normalizer));
  return {};
}

Status add_merges(Bpe& bpe, const std::vector<std::string>& merges) {
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || !is_utf8(merge)) {
      return Error{fmt::format("tokenizer.ggml.merges: \"{}\" is no pair of tokens", repair_utf8(merge))};
    }
    TRY(bpe.add_merge(std::string_view(merge).substr(0, space), std::string_view(merge).substr(space + 1)));
  }
  return {};
}

/// BPE with merges, over bytes or over characters.
Status fill_bpe(PipelineParts& parts, Tokens& tokens) {
  const GgufVocabulary& source = tokens.source;
  const std::string& name = source.pre.empty() && source.model == "gemma4" ? source.model : source.pre;
  const GgufPreTokenizer* pre = find_gguf_pre_tokenizer(name);
  if (pre == nullptr) {
    return Error{fmt::format("tokenizer.ggml.pre \"{}\" is not known, so text would be cut wrongly", source.pre)};
  }
  TRY(set_cuts(parts, *pre, source.lowercase.value_or(false)));
  TRY(set_vocabulary(parts, tokens, pre->characters ? sentence_piece_decoder(false) : typed("ByteLevel"),
                     !pre->characters));
  BpeOptions options;
  options.ignore_merges = pre->ignore_merges;
  options.byte_fallback = pre->characters;
  if (source.merges.empty()) {  // tokens are numbered in the order of their merges
    std::vector<float> scores(source.tokens.size());
    for (size_t id = 0; id < scores.size(); ++id) scores[id] = -static_cast<float>(id);
    parts.model = std::make_unique<Bpe>(*parts.vocabulary, options, scores);
  } else {
    auto bpe = std::make_unique<Bpe>(*parts.vocabulary, options, source.merges.size());
    TRY(add_merges(*bpe, source.merges));
    parts.model = std::move(bpe);
  }
  parts.bos = source.bos;
  parts.eos = source.eos;
  const bool gemma = pre->escape_spaces && pre->add_bos;  // old files of it say the wrong thing
  if ((gemma || source.add_bos.value_or(pre->add_bos)) && parts.bos) parts.frame.before = {*parts.bos};
  parts.description = fmt::format("{}BPE, pre-tokenizer {}, {} tokens", pre->characters ? "" : "byte-level ",
                                  name.empty() ? "default" : name, source.tokens.size());
  return {};
}

/// SentencePiece-style BPE by scores.
Status fill_llama(PipelineParts& parts, Tokens& tokens) {
  const GgufVocabulary& source = tokens.source;
  const bool prefix = source.add_space_prefix.value_or(true);
  Json::Array changes;
  if (prefix) changes.push_back(typed("Prepend", {{"prepend", Json("\u2581")}}));
  changes.push_back(replace(" ", "\u2581"));
  const Json normalizer = sequence("normalizers", std::move(changes));
  ASSIGN_OR_RETURN(parts.normalizer, Normalizer::from_json(&normalizer));
  TRY(set_vocabulary(parts, tokens, sentence_piece_decoder(prefix), false));
  BpeOptions options;
  options.unknown = id_or(parts, source.unknown, 0).value_or(-1);
  options.byte_fallback = true;
  parts.model = std::make_unique<Bpe>(*parts.vocabulary, options, source.scores);
  parts.bos = id_or(parts, source.bos, 1);
  parts.eos = id_or(parts, source.eos, 2);
  if (source.add_bos.value_or(true) && parts.bos) parts.frame.before = {*parts.bos};
  parts.description = fmt::format("SentencePiece BPE, {} tokens", source.tokens.size());
  return {};
}

/// SentencePiece's Unigram.
Status fill_t5(PipelineParts& parts, Tokens& tokens) {
  const GgufVocabulary& source = tokens.source;
  SentencePieceRules rules;
  rules.add_prefix = source.add_space_prefix.value_or(true);
  rules.remove_extra_spaces = source.remove_extra_spaces.value_or(false);
  rules.kept = tokens.user_defined_texts();
  if (!source.charsmap.empty()) {
    ASSIGN_OR_RETURN(rules.charsmap, Charsmap::make(source.charsmap));
  }
  const bool prefix = rules.add_prefix;
  ASSIGN_OR_RETURN(auto normalization, sentence_piece_normalization(std::move(rules)));
  parts.normalizer.add(std::move(normalization));
  TRY(set_vocabulary(parts, tokens, sentence_piece_decoder(prefix), false));
  double lowest = std::numeric_limits<float>::max();
  std::vector<double> scores(source.scores.begin(), source.scores.end());
  for (size_t id = 0; id < scores.size(); ++id) {
    const int32_t type = tokens.type(id);
    if (type == normal) lowest = std::min(lowest, scores[id]);
    if (type == user_defined) scores[id] = 0.0;
  }
  constexpr float unknown_penalty = 10.0F;
  UnigramOptions options;
  options.unknown = id_or(parts, source.unknown, 2).value_or(-1);
  options.unknown_score = static_cast<float>(lowest) - unknown_penalty;
  options.byte_fallback = true;
  options.whole_texts = true;
  ASSIGN_OR_RETURN(parts.model, Unigram::make(*parts.vocabulary, options, std::move(scores)));
  parts.bos = source.bos;
  parts.eos = id_or(parts, source.eos, 1);
  if (source.add_bos.value_or(false) && parts.bos) parts.frame.before = {*parts.bos};
  if (source.add_eos.value_or(true) && parts.eos) parts.frame.after = {*parts.eos};
  parts.description = fmt::format("SentencePiece Unigram, {} tokens", source.tokens.size());
  return {};
}

/// WordPiece. U+2581 marks the start of words, and nothing what goes on.
Status fill_bert(PipelineParts& parts, Tokens& tokens) {
  const GgufVocabulary& source = tokens.source;
  const bool lowercase = source.lowercase.value_or(true);
  const bool strip_accents = source.strip_accents.value_or(lowercase);
  const Json normalizer =
      typed("BertNormalizer", {{"lowercase", Json(lowercase)}, {"strip_accents", Json(strip_accents)}});
  ASSIGN_OR_RETURN(parts.normalizer, Normalizer::from_json(&normalizer));
  const Json pre_tokenizer = typed("BertPreTokenizer");
  ASSIGN_OR_RETURN(parts.pre_tokenizer, PreTokenizer::from_json(&pre_tokenizer));
  Json::Array decoders{replace("\u2581", " "), typed("WordPiece", {{"prefix", Json("")}}), typed("Fuse"),
                       typed("Strip", {{"content", Json(" ")}, {"start", Json(1)}, {"stop", Json(0)}})};
  TRY(set_vocabulary(parts, tokens, sequence("decoders", std::move(decoders)), false));
  WordPieceOptions options;
  options.unknown = id_or(parts, source.unknown, 100).value_or(-1);
  options.start = "\u2581";
  options.continuation = "";
  options.max_characters = std::numeric_limits<int64_t>::max();
  ASSIGN_OR_RETURN(parts.model, WordPiece::make(*parts.vocabulary, options));
  const std::optional<int32_t> begin = id_or(parts, source.bos ? source.bos : source.cls, 101);
  const std::optional<int32_t> end = id_or(parts, source.separator, 102);
  if (source.add_bos.value_or(true) && begin) parts.frame.before = {*begin};
  if (source.add_separator.value_or(true) && end) parts.frame.after = {*end};
  parts.bos = source.bos;
  parts.eos = source.eos;
  parts.description = fmt::format("WordPiece, {} tokens", source.tokens.size());
  return {};
}

/// GGUF does not say how two texts are joined: BERT numbers them, XLM-RoBERTa has another separator between them.
void set_pair(Frame& frame, const GgufVocabulary& source) {
  const bool bert = source.model == "bert";
  frame.pair.clear();
  for (const int32_t id : frame.before) frame.pair.push_back({-1, id, 0});
  frame.pair.push_back({0, 0, 0});
  for (const int32_t id : frame.after) frame.pair.push_back({-1, id, 0});
  if (!bert && source.separator) frame.pair.push_back({-1, *source.separator, 0});
  frame.pair.push_back({1, 0, bert ? 1 : 0});
  for (const int32_t id : frame.after) frame.pair.push_back({-1, id, bert ? 1 : 0});
}

constexpr Kind kinds[] = {{"gpt2", fill_bpe},    {"gemma4", fill_bpe}, {"whitespace", fill_bpe},
                          {"llama", fill_llama}, {"t5", fill_t5},      {"bert", fill_bert}};

const Kind* find_kind(std::string_view model) {
  const auto* const found = std::ranges::find(kinds, model, &Kind::name);
  return found != std::end(kinds) ? found : nullptr;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_gguf(GgufVocabulary source) {
  TRY(check(source));
  Tokens tokens(source);
  PipelineParts parts;
  TRY(find_kind(source.model)->fill(parts, tokens));
  parts.added = tokens.added();
  const bool has_end = !parts.frame.after.empty();
  if (source.add_eos.value_or(false) && parts.eos && !has_end) parts.frame.after = {*parts.eos};
  set_pair(parts.frame, source);
  if (source.fim_prefix && source.fim_suffix && source.fim_middle) {
    parts.fill_in = FillInTokens{*source.fim_prefix, *source.fim_suffix, *source.fim_middle};
  }
  for (const std::optional<int32_t> id : {source.eot, source.eom}) {
    if (id) parts.end_of_generation.push_back(*id);
  }
  return make_pipeline(std::move(parts));
}

}  // namespace quern
