#include "text/detokenizer.h"

#include <utility>

#include "text/pattern/unicode.h"

namespace quern {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

std::string Detokenizer::add(int32_t token) {
  if (skip_special_ && tokenizer_->is_special(token)) return {};
  std::string_view bytes = tokenizer_->token_bytes(token);
  if (bytes.empty()) return {};
  if (at_start_ && tokenizer_->strips_leading_space() && bytes.starts_with(' ')) bytes.remove_prefix(1);
  at_start_ = false;
  held_ += bytes;
  return take_utf8(held_, false);
}

std::string Detokenizer::finish() { return take_utf8(held_, true); }

}  // namespace quern
