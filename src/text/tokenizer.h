// Tokenizer: text <-> token ids. Immutable once loaded; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace quern {

/// What marks the parts of a text into which the model fills something in: what is before that, what is after it, and
/// where it begins.
struct FillInTokens {
  int32_t prefix = 0, suffix = 0, middle = 0;
};

/// A vocabulary as GGUF metadata spells it (`tokenizer.ggml.*`).
struct GgufVocabulary {
  std::string model;  // "gpt2" (byte-level BPE), "gemma4" (BPE), "llama" (SentencePiece-style BPE), "t5" (Unigram),
                      // "bert" (WordPiece)
  std::string pre;    // which pre-tokenizer, "" when absent
  std::vector<std::string> tokens;
  std::vector<float> scores;        // llama and t5
  std::vector<int32_t> types;       // 1 normal 2 unknown 3 control 4 user-defined 5 unused 6 byte; may be empty
  std::vector<std::string> merges;  // gpt2 and gemma4
  std::string charsmap;             // t5: how SentencePiece normalizes; may be empty
  std::optional<int32_t> bos, eos, eot, eom, unknown, padding, separator, cls, mask;
  std::optional<int32_t> fim_prefix, fim_suffix, fim_middle;  // of texts into which something is filled in
  std::optional<bool> add_bos, add_eos, add_separator, add_space_prefix, remove_extra_spaces;
  std::optional<bool> lowercase, strip_accents;  // bert
  bool is_phi_3 = false;                         // its control tokens take the whitespace after them along
};

struct EncodeOptions {
  bool add_special = true;     // BOS and EOS as the model's post-processor says
  bool parse_special = false;  // special tokens written out in the text become their ids; only for trusted text
};

/// Two texts as one, for models that compare them.
struct EncodedPair {
  std::vector<int32_t> ids;
  std::vector<int32_t> types;  // of each id: which text it belongs to, for models that want to know
};

/// Text that is either trusted (written by a template) or came from a user.
struct TextPiece {
  std::string text;
  bool trusted = false;
};

class Tokenizer {
 public:
  /// From the text of tokenizer.json; `config` is tokenizer_config.json, a null Json when there is none.
  static Result<std::shared_ptr<const Tokenizer>> from_json(std::string_view tokenizer_json, const Json& config);
  static Result<std::shared_ptr<const Tokenizer>> from_gguf(GgufVocabulary vocabulary);
  /// From the bytes of a SentencePiece model (tokenizer.model).
  static Result<std::shared_ptr<const Tokenizer>> from_sentence_piece(std::string_view model, const Json& config);
  /// From the text of Mistral's tekken.json.
  static Result<std::shared_ptr<const Tokenizer>> from_tekken(std::string_view tekken_json);
  /// From the texts of vocab.json and merges.txt; `config` says of which class they are.
  static Result<std::shared_ptr<const Tokenizer>> from_merges(std::string_view vocab_json, std::string_view merges_txt,
                                                              const Json& config);

  virtual ~Tokenizer() = default;

  /// Invalid UTF-8 in `text` is first replaced by U+FFFD.
  virtual Result<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options) const = 0;
  /// Encodes pieces as one text: special tokens are recognised in trusted pieces only. No BOS or EOS is added when the
  /// text already starts or ends with it.
  virtual Result<std::vector<int32_t>> encode_pieces(std::span<const TextPiece> pieces, bool add_special) const = 0;

  /// Both texts with the special tokens that the model has around and between them. Neither is trusted.
  virtual Result<EncodedPair> encode_pair(std::string_view first, std::string_view second) const;

  /// The text of a whole sequence as the model's decoder says. Bytes that are no UTF-8 become U+FFFD. Ids out of range
  /// are skipped.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special) const = 0;

  /// Whether encoding takes time in proportion to the text, whatever the text is.
  virtual bool is_linear() const { return false; }

  /// The raw bytes that a token adds in the middle of a text (may be part of a character). Empty for ids out of range.
  virtual std::string_view token_bytes(int32_t id) const = 0;
  /// The raw bytes that it adds at the start of a text.
  virtual std::string_view first_token_bytes(int32_t id) const {
    std::string_view bytes = token_bytes(id);
    if (strips_leading_space() && bytes.starts_with(' ')) bytes.remove_prefix(1);
    return bytes;
  }
  /// Whether a text is still at its start after tokens that add nothing there.
  virtual bool stays_at_start() const { return false; }
  /// Whether a text is the bytes of its tokens, one after the other; else only `decode` tells.
  virtual bool decodes_by_token() const { return true; }
  /// The token as the vocabulary spells it.
  virtual std::string_view token_text(int32_t id) const = 0;
  virtual std::optional<int32_t> id_of(std::string_view token_text) const = 0;
  virtual bool is_special(int32_t id) const = 0;

  /// Number of ids, added tokens included. The model's logits may be wider.
  virtual int size() const = 0;
  virtual std::optional<int32_t> bos() const = 0;
  virtual std::optional<int32_t> eos() const = 0;
  /// Whether the decoder drops one leading space of a text (SentencePiece style).
  virtual bool strips_leading_space() const = 0;
  /// Tokens that end a generation according to the vocabulary (EOS, EOT and known spellings of them), sorted.
  virtual std::span<const int32_t> end_of_generation() const = 0;
  /// Where the file names them; else their spelling tells.
  virtual std::optional<FillInTokens> fill_in_tokens() const { return std::nullopt; }
  /// One line for people: kind, pre-tokenizer, size.
  virtual std::string description() const = 0;
};

inline Result<EncodedPair> Tokenizer::encode_pair(std::string_view, std::string_view) const {
  return Error{"this tokenizer does not join two texts"};
}

}  // namespace quern
