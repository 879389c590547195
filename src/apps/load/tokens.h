// LoadTokens: a tokenizer on the client's side: prompts of an exact number of tokens, and the tokens of what comes
// back. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace quern {

class LoadTokens {
 public:
  /// `model`: a tokenizer.json, a .gguf file, a directory that has a tokenizer, or a model by its name.
  static Result<LoadTokens> open(const std::string& model);
  explicit LoadTokens(std::shared_ptr<const Tokenizer> tokenizer);

  /// Tokens of a text alone, without those that a model puts around it.
  int count(std::string_view text) const;
  /// How many a model puts around a prompt.
  int around() const { return around_; }

  /// A token that stands for text.
  int32_t draw_id(std::mt19937_64& random) const;
  /// A text after `start` that makes it exactly `tokens` tokens longer than nothing; `start` is part of it and of the
  /// count.
  Result<std::string> draw_text(std::string start, int tokens, std::mt19937_64& random) const;

  /// How many tokens of the text end in each of the chunks that it came in.
  std::vector<int> by_chunk(std::string_view text, std::span<const int> chunk_bytes) const;

 private:
  std::vector<int32_t> encode(std::string_view text) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<int32_t> ids_;         // not special, and with bytes
  std::vector<std::string> pieces_;  // each a token more wherever it is added, as far as one can know
  int around_ = 0;
};

}  // namespace quern
