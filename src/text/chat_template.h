// ChatTemplate: a conversation -> prompt text, by the model's own Jinja template. Immutable once parsed; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer.h"

namespace quern {

/// Bounds of one rendering; templates are files from strangers.
struct TemplateLimits {
  int64_t max_operations = 20'000'000;
  int64_t max_output_bytes = 16 << 20;
  int max_depth = 100;  // of macro calls and nested expressions
  int64_t max_time_us = 2'000'000;
  int64_t max_memory_bytes = 256 << 20;  // of all values together
};

class ChatTemplate {
 public:
  /// Parses with `trim_blocks`, `lstrip_blocks`, loop controls and the extensions that `transformers` turns on.
  static Result<ChatTemplate> parse(std::string_view source);
  /// Gives it another template that its model has: "tool_use", which conversations with tools are rendered by, or one
  /// that is rendered by where its name is asked for.
  Status add(const std::string& name, std::string_view source);
  /// The template of that name, or nullptr; "default" is this one, with tools or without.
  const ChatTemplate* named(std::string_view name) const;
  /// Of those that were added.
  std::vector<std::string> names() const;

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Renders with the members of `variables` (an object: messages, tools, add_generation_prompt, bos_token, ...) as
  /// globals. Strings that stand in `variables` come out as untrusted pieces, except the values of the members named in
  /// `trusted` (bos_token, eos_token ...); what the template itself writes is trusted. An exception raised by the
  /// template is an error with its own message. `strftime_now` shows local time, or `unix_time` (seconds) in UTC when
  /// given.
  Result<std::vector<TextPiece>> render(const Json& variables, const std::vector<std::string>& trusted = {},
                                        const TemplateLimits& limits = {}, std::optional<int64_t> unix_time = {}) const;

  const std::string& source() const { return source_for(false); }
  /// What conversations with tools are rendered by.
  const std::string& source_for_tools() const { return source_for(true); }
  const std::string& source_for(bool tools) const;

 private:
  struct Program;
  explicit ChatTemplate(std::shared_ptr<const Program> program);
  const Program& program_for(bool tools) const;
  std::shared_ptr<const Program> program_;
  std::map<std::string, std::shared_ptr<const ChatTemplate>, std::less<>> named_;
};

/// The concatenated text of pieces.
std::string join(const std::vector<TextPiece>& pieces);

}  // namespace quern
