// The pre-tokenizers that GGUF files name in `tokenizer.ggml.pre`.
#pragma once

#include <span>
#include <string_view>

namespace quern {

/// How text is cut: by each pattern in turn, matches and what lies between them becoming pieces.
struct GgufPreTokenizer {
  std::span<const std::string_view> patterns;
  bool ignore_merges = false;
  bool add_bos = false;        // where the file does not say
  bool characters = false;     // the model works on characters, not on bytes
  bool escape_spaces = false;  // spaces become U+2581 before the cuts
  bool drop_spaces = false;    // whitespace is cut away
};

/// nullptr for names that are not known; "" is the default one.
const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name);

}  // namespace quern
