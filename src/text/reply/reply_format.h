// ReplyFormat: what a model's replies look like: the dialect of its calls and the marks of its reasoning, and which of
// their markers are special tokens. Found once, from the chat template. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/reply/thinking.h"
#include "text/tokenizer.h"
#include "text/tool_calls/dialect.h"

namespace quern {

class ReplyFormat {
 public:
  /// Replies are text and nothing else.
  ReplyFormat() = default;
  /// Names of parsers as vLLM has them, "none" for no such thing; "" takes what the chat template shows, and for calls
  /// plain JSON where it shows none.
  static Result<ReplyFormat> make(std::string_view tool_call_parser, std::string_view reasoning_parser,
                                  std::string_view chat_template, const Tokenizer& tokenizer);

  const Dialect* dialect() const { return dialect_; }
  const Thinking* thinking() const { return thinking_; }
  /// Whether reasoning is told apart from content.
  bool separates_reasoning() const;
  /// The marker that this special token is; "" for any other token.
  std::string_view marker(int32_t token) const;
  std::vector<std::string> special_markers() const;
  /// Whether a prompt that ends like this has opened the reasoning.
  bool opens_reasoning(std::string_view prompt_end) const;
  /// One line for people.
  std::string description() const;

 private:
  const Dialect* dialect_ = nullptr;
  const Thinking* thinking_ = nullptr;
  bool detected_ = false;
  std::vector<std::pair<int32_t, std::string>> markers_;  // sorted
};

}  // namespace quern
