#include "text/tokenizer/pipeline.h"

#include <algorithm>
#include <fmt/format.h>

#include "text/pattern/unicode.h"

namespace quern {
namespace {

constexpr size_t max_text_bytes = size_t{1} << 30;

/// Spellings of tokens that end an answer or a turn, whatever ids a file names.
constexpr std::string_view end_spellings[] = {"<|eot_id|>",
                                              "<|im_end|>",
                                              "<|end|>",
                                              "<|return|>",
                                              "<|call|>",
                                              "<|flush|>",
                                              "<|calls|>",
                                              "<end_of_turn>",
                                              "<|endoftext|>",
                                              "</s>",
                                              "<|eom_id|>",
                                              "<EOT>",
                                              "_<EOT>",
                                              "[EOT]",
                                              "<|end_of_text|>",
                                              "<turn|>",
                                              "<|tool_response>",
                                              "<end_of_utterance>",
                                              "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
                                              "[EOS]",
                                              "<eos>",
                                              "[e~["};

class Pipeline final : public Tokenizer {
 public:
  explicit Pipeline(PipelineParts parts);

  Result<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options) const override;
  Result<std::vector<int32_t>> encode_pieces(std::span<const TextPiece> pieces, bool add_special) const override;
  Result<EncodedPair> encode_pair(std::string_view first, std::string_view second) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override;
  bool is_linear() const override { return parts_.normalizer.is_linear() && parts_.pre_tokenizer.is_linear(); }

  std::string_view token_bytes(int32_t id) const override {
    return vocabulary().contains(id) ? vocabulary().bytes(id) : std::string_view();
  }
  std::string_view token_text(int32_t id) const override {
    return vocabulary().contains(id) ? vocabulary().text(id) : std::string_view();
  }
  std::optional<int32_t> id_of(std::string_view token_text) const override {
    const int32_t id = is_utf8(token_text) ? vocabulary().find_text(token_text) : -1;
    return id >= 0 ? std::optional(id) : std::nullopt;
  }
  bool is_special(int32_t id) const override { return vocabulary().contains(id) && vocabulary().special(id); }
  int size() const override { return vocabulary().size(); }
  std::optional<int32_t> bos() const override { return parts_.bos; }
  std::optional<int32_t> eos() const override { return parts_.eos; }
  bool strips_leading_space() const override { return parts_.decoder.strips_leading_space(); }
  std::string_view first_token_bytes(int32_t id) const override {
    return vocabulary().contains(id) ? vocabulary().first_bytes(id) : std::string_view();
  }
  bool stays_at_start() const override { return parts_.stays_at_start; }
  bool decodes_by_token() const override { return parts_.decoder.by_token(); }
  std::span<const int32_t> end_of_generation() const override { return end_of_generation_; }
  std::optional<FillInTokens> fill_in_tokens() const override { return parts_.fill_in; }
  std::string description() const override { return parts_.description; }

 private:
  const Vocabulary& vocabulary() const { return *parts_.vocabulary; }
  void find_end_of_generation();
  /// Encodes the text between raw added tokens.
  Status encode_fragment(std::string_view text, Span span, const Trust& trust, std::vector<int32_t>& ids) const;
  Status encode_normalized(std::string_view text, bool at_start, std::vector<int32_t>& ids) const;
  std::string decode_whole(std::span<const int32_t> ids, bool skip_special) const;

  PipelineParts parts_;
  AddedTokens raw_;              // looked for in the text as it is
  AddedTokens normalized_;       // looked for after the normalizer
  AddedTokens raw_and_special_;  // raw_ and the special ones of normalized_
  std::vector<int32_t> end_of_generation_;
};

Pipeline::Pipeline(PipelineParts parts) : parts_(std::move(parts)) {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  std::vector<AddedToken> raw_and_special;
  for (const AddedToken& token : parts_.added) {
    if (!token.normalized || token.special) raw_and_special.push_back(token);
    if (!token.normalized) {
      raw.push_back(token);
      continue;
    }
    AddedToken changed = token;
    const bool usable = parts_.normalizer.apply(changed.content).ok() && !changed.content.empty() &&
                        changed.content.size() <= max_added_token_bytes;
    if (usable) normalized.push_back(std::move(changed));
  }
  raw_ = AddedTokens(std::move(raw));
  normalized_ = AddedTokens(std::move(normalized));
  raw_and_special_ = AddedTokens(std::move(raw_and_special));
  find_end_of_generation();
}

void Pipeline::find_end_of_generation() {
  std::vector<int32_t>& ends = end_of_generation_;
  ends = parts_.end_of_generation;
  if (parts_.eos) ends.push_back(*parts_.eos);
  const auto added = [this](std::string_view text) {
    const auto found = std::ranges::find(parts_.added, text, &AddedToken::content);
    return found != parts_.added.end() ? found->id : -1;
  };
  for (const std::string_view spelling : end_spellings) {
    const int32_t id = added(spelling);
    if (id >= 0 && (spelling != "</s>" || is_special(id))) ends.push_back(id);
  }
  // In the harmony format <|end|> closes a message within the answer.
  const bool harmony = added("<|return|>") >= 0 && (added("<|call|>") >= 0 || added("<|calls|>") >= 0);
  if (harmony) std::erase(ends, added("<|end|>"));
  std::ranges::sort(ends);
  const auto repeated = std::ranges::unique(ends);
  ends.erase(repeated.begin(), repeated.end());
}

Result<std::vector<int32_t>> Pipeline::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > max_text_bytes) return Error{"the text is longer than 1 GiB"};
  std::string repaired;
  if (!is_utf8(text)) {
    repaired = repair_utf8(text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  const Frame& frame = parts_.frame;
  if (options.add_special) ids = frame.before;
  const Trust trust = options.parse_special ? Trust::all() : Trust::none();
  for (const Fragment& fragment : raw_.find(text, trust)) {
    if (fragment.token >= 0) {
      ids.push_back(fragment.token);
    } else {
      TRY(encode_fragment(text, fragment.span, trust, ids));
    }
  }
  if (options.add_special) ids.insert(ids.end(), frame.after.begin(), frame.after.end());
  return ids;
}

/// Special tokens are looked for in the text as it is, even those that the file wants normalized: after the normalizer
/// nobody could tell which parts of the text are trusted.
Result<std::vector<int32_t>> Pipeline::encode_pieces(std::span<const TextPiece> pieces, bool add_special) const {
  std::string text;
  std::vector<Span> trusted;
  for (const TextPiece& piece : pieces) {
    if (piece.text.size() > max_text_bytes - text.size()) return Error{"the text is longer than 1 GiB"};
    const auto begin = static_cast<uint32_t>(text.size());
    text += is_utf8(piece.text) ? piece.text : repair_utf8(piece.text);
    const auto end = static_cast<uint32_t>(text.size());
    if (!piece.trusted || begin == end) continue;
    const bool continues = !trusted.empty() && trusted.back().end == begin;
    continues ? trusted.back().end = end : (trusted.push_back({begin, end}), end);
  }
  std::vector<int32_t> ids;
  for (const Fragment& fragment : raw_and_special_.find(text, Trust::parts(trusted))) {
    if (fragment.token >= 0) {
      ids.push_back(fragment.token);
    } else {
      TRY(encode_fragment(text, fragment.span, Trust::none(), ids));
    }
  }
  if (!add_special) return ids;
  const std::vector<int32_t>& before = parts_.frame.before;
  const std::vector<int32_t>& after = parts_.frame.after;
  const bool begun = !before.empty() && !ids.empty() && ids.front() == before.front();
  const bool ended = !after.empty() && !ids.empty() && ids.back() == after.back();
  if (!begun) ids.insert(ids.begin(), before.begin(), before.end());
  if (!ended) ids.insert(ids.end(), after.begin(), after.end());
  return ids;
}

Result<EncodedPair> Pipeline::encode_pair(std::string_view first, std::string_view second) const {
  EncodedPair pair;
  for (const PairPart& part : parts_.frame.pair) {
    if (part.text < 0) {
      pair.ids.push_back(part.id);
    } else {
      ASSIGN_OR_RETURN(const auto ids, encode(part.text == 0 ? first : second, {.add_special = false}));
      pair.ids.insert(pair.ids.end(), ids.begin(), ids.end());
    }
    pair.types.resize(pair.ids.size(), part.type);
  }
  return pair;
}

Status Pipeline::encode_fragment(std::string_view text, Span span, const Trust& trust,
                                 std::vector<int32_t>& ids) const {
  text = part(text, span);
  std::string changed;
  bool at_start = span.begin == 0;
  if (!parts_.normalizer.changes_nothing()) {
    changed = text;
    TRY(parts_.normalizer.apply(changed, &at_start));
    text = changed;
  }
  if (normalized_.empty()) return encode_normalized(text, at_start, ids);
  for (const Fragment& fragment : normalized_.find(text, trust)) {
    if (fragment.token >= 0) {
      ids.push_back(fragment.token);
    } else {
      TRY(encode_normalized(part(text, fragment.span), at_start && fragment.span.begin == 0, ids));
    }
  }
  return {};
}

Status Pipeline::encode_normalized(std::string_view text, bool at_start, std::vector<int32_t>& ids) const {
  if (text.empty()) return {};
  Pieces pieces;
  pieces.text = text;
  pieces.spans = {{0, static_cast<uint32_t>(text.size())}};
  pieces.at_start = at_start;
  pieces.bytes_mapped = parts_.normalizer.maps_bytes();
  TRY(parts_.pre_tokenizer.apply(pieces));
  for (const Span span : pieces.spans) parts_.model->encode(part(pieces.text, span), ids);
  return {};
}

std::string Pipeline::decode(std::span<const int32_t> ids, bool skip_special) const {
  if (!decodes_by_token()) return decode_whole(ids, skip_special);
  std::string bytes;
  bool at_start = true;
  for (const int32_t id : ids) {
    if ((skip_special && is_special(id)) || token_bytes(id).empty()) continue;
    const std::string_view added = at_start ? first_token_bytes(id) : token_bytes(id);
    at_start = at_start && added.empty() && parts_.stays_at_start;
    bytes += added;
  }
  return is_utf8(bytes) ? bytes : take_utf8(bytes, true);
}

std::string Pipeline::decode_whole(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    if (vocabulary().contains(id) && !(skip_special && is_special(id))) tokens.emplace_back(token_text(id));
  }
  return parts_.decoder.decode(std::move(tokens));
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> make_pipeline(PipelineParts parts) {
  const auto known = [&parts](int32_t id) { return parts.vocabulary->contains(id); };
  const auto refuse = [&parts](std::string_view what, int32_t id) {
    return Error{
        fmt::format("tokenizer: {} is {}, but the vocabulary ends at {}", what, id, parts.vocabulary->size() - 1)};
  };
  if (parts.bos && !known(*parts.bos)) return refuse("the BOS token id", *parts.bos);
  if (parts.eos && !known(*parts.eos)) return refuse("the EOS token id", *parts.eos);
  for (const PairPart& part : parts.frame.pair) {
    if (part.text < 0 && !known(part.id)) return refuse("a special token id", part.id);
  }
  for (const auto* ids : {&parts.frame.before, &parts.frame.after, &parts.end_of_generation}) {
    const auto bad = std::ranges::find_if_not(*ids, known);
    if (bad != ids->end()) return refuse("a special token id", *bad);
  }
  for (const AddedToken& token : parts.added) {
    if (!known(token.id)) return refuse("an added token id", token.id);
    if (token.content.size() <= max_added_token_bytes) continue;
    return Error{fmt::format("tokenizer: added token {} has {} bytes; at most {} are supported", token.id,
                             token.content.size(), max_added_token_bytes)};
  }
  std::erase_if(parts.added, [](const AddedToken& token) { return token.content.empty(); });
  return std::shared_ptr<const Tokenizer>(std::make_shared<Pipeline>(std::move(parts)));
}

}  // namespace quern
