#include "text/detokenizer.h"

#include <utility>

#include "text/pattern/unicode.h"

namespace quern {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

std::string Detokenizer::add(int32_t token) {
  if (skip_special_ && tokenizer_->is_special(token)) return {};
  if (!tokenizer_->decodes_by_token()) return add_to_window(token);
  if (tokenizer_->token_bytes(token).empty()) return {};
  const std::string_view bytes = at_start_ ? tokenizer_->first_token_bytes(token) : tokenizer_->token_bytes(token);
  at_start_ = at_start_ && bytes.empty() && tokenizer_->stays_at_start();
  held_ += bytes;
  return take_utf8(held_, false);
}

/// Shows what the text of the last tokens has more than the text of those without the new one.
std::string Detokenizer::add_to_window(int32_t token) {
  window_.push_back(token);
  const std::string text = tokenizer_->decode(window_, skip_special_);
  if (text.size() <= shown_.size() || !text.starts_with(shown_) || text.ends_with(replacement_character)) return {};
  std::string added = text.substr(shown_.size());
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(settled_));
  settled_ = window_.size();
  shown_ = tokenizer_->decode(window_, skip_special_);
  return added;
}

std::string Detokenizer::finish() {
  if (tokenizer_->decodes_by_token()) return take_utf8(held_, true);
  const std::string text = tokenizer_->decode(window_, skip_special_);
  return text.starts_with(shown_) ? text.substr(shown_.size()) : std::string();
}

}  // namespace quern
