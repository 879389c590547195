// Detokenizer: tokens of one answer -> text as it grows, never half a character. Thread: whoever owns the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace quern {

class Detokenizer {
 public:
  /// With `skip_special`, special tokens add no text.
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special);

  /// The text that this token completes; incomplete UTF-8 at the end is held back. What can never become a character
  /// is U+FFFD.
  std::string add(int32_t token);
  /// What was held back, as U+FFFD; at the end of an answer.
  std::string finish();

 private:
  std::string add_to_window(int32_t token);

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  bool at_start_ = true;
  std::string held_;
  // For tokenizers that do not decode by token: the last tokens, of which the first `settled_` are shown as `shown_`.
  std::vector<int32_t> window_;
  size_t settled_ = 0;
  std::string shown_;
};

}  // namespace quern
