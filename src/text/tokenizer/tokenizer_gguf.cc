// Tokenizers from GGUF metadata.
#include <algorithm>
#include <deque>
#include <fmt/format.h>

#include "text/pattern/gguf_patterns.h"
#include "text/pattern/unicode.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/decode.h"
#include "text/tokenizer/pipeline.h"

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

/// The texts and types of a file's tokens, checked.
struct Tokens {
  explicit Tokens(const GgufVocabulary& vocabulary) : source(vocabulary) {}

  int32_t type(size_t id) const {
    const auto is = [id](std::optional<int32_t> special) { return special && static_cast<size_t>(*special) == id; };
    if (is(source.bos) || is(source.eos) || is(source.eot) || is(source.eom)) return control;
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
      tokens.push_back(std::move(token));
    }
    return tokens;
  }

  const GgufVocabulary& source;
  std::deque<std::string> repaired;
};

Status check(const GgufVocabulary& vocabulary) {
  const size_t count = vocabulary.tokens.size();
  if (vocabulary.model != "gpt2" && vocabulary.model != "llama") {
    return Error{
        fmt::format("tokenizer.ggml.model \"{}\" is not supported, only gpt2 and llama are", vocabulary.model)};
  }
  if (count == 0) return Error{"tokenizer.ggml.tokens is empty or missing"};
  if (count > static_cast<size_t>(max_token_id))
    return Error{fmt::format("tokenizer.ggml.tokens has {} tokens", count)};
  if (!vocabulary.types.empty() && vocabulary.types.size() != count) {
    return Error{fmt::format("tokenizer.ggml.token_type has {} entries for {} tokens", vocabulary.types.size(), count)};
  }
  if (vocabulary.model == "llama" && vocabulary.scores.size() != count) {
    return Error{fmt::format("tokenizer.ggml.scores has {} entries for {} tokens", vocabulary.scores.size(), count)};
  }
  if (vocabulary.model == "gpt2" && vocabulary.merges.empty())
    return Error{"tokenizer.ggml.merges is empty or missing"};
  const std::pair<std::string_view, std::optional<int32_t>> ids[] = {
      {"bos", vocabulary.bos}, {"eos", vocabulary.eos},         {"eot", vocabulary.eot},
      {"eom", vocabulary.eom}, {"unknown", vocabulary.unknown}, {"padding", vocabulary.padding}};
  for (const auto& [name, id] : ids) {
    if (id && (*id < 0 || static_cast<size_t>(*id) >= count)) {
      return Error{fmt::format("tokenizer.ggml.{}_token_id is {}, but there are {} tokens", name, *id, count)};
    }
  }
  return {};
}

/// Byte-level BPE with merges.
Status fill_gpt2(PipelineParts& parts, Tokens& tokens) {
  const GgufVocabulary& source = tokens.source;
  const GgufPreTokenizer* pre = find_gguf_pre_tokenizer(source.pre);
  if (pre == nullptr) {
    return Error{fmt::format("tokenizer.ggml.pre \"{}\" is not known, so text would be cut wrongly", source.pre)};
  }
  Json::Array cuts;
  for (const std::string_view pattern : pre->patterns) {
    cuts.push_back(typed("Split", {{"pattern", Json(Json::Object{{"Regex", Json(pattern)}})}}));
  }
  cuts.push_back(typed("ByteLevel", {{"add_prefix_space", Json(false)}, {"use_regex", Json(false)}}));
  const Json pre_tokenizer = sequence("pretokenizers", std::move(cuts));
  ASSIGN_OR_RETURN(parts.pre_tokenizer, PreTokenizer::from_json(&pre_tokenizer));
  const Json decoder_json = typed("ByteLevel");
  ASSIGN_OR_RETURN(const TokenDecoder decoder, TokenDecoder::from_json(&decoder_json));
  ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::make(tokens.entries(), decoder, true));
  parts.vocabulary = std::make_unique<const Vocabulary>(std::move(vocabulary));

  BpeOptions options;
  options.ignore_merges = pre->ignore_merges;
  auto bpe = std::make_unique<Bpe>(*parts.vocabulary, options, source.merges.size());
  for (const std::string& merge : source.merges) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || !is_utf8(merge)) {
      return Error{fmt::format("tokenizer.ggml.merges: \"{}\" is no pair of tokens", repair_utf8(merge))};
    }
    TRY(bpe->add_merge(std::string_view(merge).substr(0, space), std::string_view(merge).substr(space + 1)));
  }
  parts.model = std::move(bpe);
  parts.bos = source.bos;
  parts.eos = source.eos;
  if (source.add_bos.value_or(pre->add_bos) && parts.bos) parts.frame.before = {*parts.bos};
  parts.description = fmt::format("byte-level BPE, pre-tokenizer {}, {} tokens",
                                  source.pre.empty() ? "default" : source.pre, source.tokens.size());
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
  ASSIGN_OR_RETURN(parts.pre_tokenizer, PreTokenizer::from_json(nullptr));
  Json::Array decoders{replace("\u2581", " "), typed("ByteFallback"), typed("Fuse")};
  if (prefix) decoders.push_back(typed("Strip", {{"content", Json(" ")}, {"start", Json(1)}, {"stop", Json(0)}}));
  const Json decoder_json = sequence("decoders", std::move(decoders));
  ASSIGN_OR_RETURN(const TokenDecoder decoder, TokenDecoder::from_json(&decoder_json));
  ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::make(tokens.entries(), decoder, false));
  parts.vocabulary = std::make_unique<const Vocabulary>(std::move(vocabulary));

  const auto id_or = [&](std::optional<int32_t> id, int32_t fallback) {
    return id ? id : parts.vocabulary->contains(fallback) ? std::optional(fallback) : std::nullopt;
  };
  BpeOptions options;
  options.unknown = id_or(source.unknown, 0).value_or(-1);
  options.byte_fallback = true;
  parts.model = std::make_unique<Bpe>(*parts.vocabulary, options, source.scores);
  parts.strips_leading_space = decoder.strips_leading_space();
  parts.bos = id_or(source.bos, 1);
  parts.eos = id_or(source.eos, 2);
  if (source.add_bos.value_or(true) && parts.bos) parts.frame.before = {*parts.bos};
  parts.description = fmt::format("SentencePiece BPE, {} tokens", source.tokens.size());
  return {};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_gguf(GgufVocabulary source) {
  TRY(check(source));
  Tokens tokens(source);
  PipelineParts parts;
  TRY(source.model == "gpt2" ? fill_gpt2(parts, tokens) : fill_llama(parts, tokens));
  parts.added = tokens.added();
  if (source.add_eos.value_or(false) && parts.eos) parts.frame.after = {*parts.eos};
  for (const std::optional<int32_t> id : {source.eot, source.eom}) {
    if (id) parts.end_of_generation.push_back(*id);
  }
  return make_pipeline(std::move(parts));
}

}  // namespace quern
