// The pattern that cuts a text where its script changes, as the pre-tokenizer UnicodeScripts does.
#pragma once

#include <string>

namespace quern {

/// Matches stretches of one script; Hiragana and Katakana count as Han. Spaces and what has no script belong to the
/// stretch before them, and to none at the start of a text.
std::string scripts_pattern();

}  // namespace quern
