// OpenAiWire: writes the JSON of chats and completions, whole and in chunks; no JSON library. One answer's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/wire.h"
#include "text/tokenizer.h"

namespace quern {

class OpenAiWire final : public Wire {
 public:
  struct Identity {
    std::string id;
    std::string fingerprint;
    int64_t created = 0;
  };

  OpenAiWire(const Generation& generation, const TextModel& model, const Identity& identity);

  /// The role chunk of a chat choice, or the echoed prompt of a completion; nothing for a completion without echo.
  /// `scores`: the logprobs of the prompt's tokens but the first, where they are told.
  void first_chunk(std::string& out, int32_t index, const Prompt& prompt, const std::vector<TokenLogprobs>& scores,
                   const Usage& usage) override;
  /// The chunk or chunks for what an event added; nothing when it added nothing to be seen.
  void chunk(std::string& out, int32_t index, const AnswerPiece& piece, const Usage& usage) override;
  /// The usage, when it was asked for, and the mark of the end.
  void finish(std::string& out, const Usage& usage) override;
  void error(std::string& out, const ApiError& error) override;

  std::string whole(const std::vector<WholeChoice>& choices, const Usage& usage) override;

 private:
  void begin_chunk(std::string& out, int32_t index) const;
  void end_chunk(std::string& out, const AnswerEnd* end, const std::vector<int32_t>* token_ids,
                 const Usage& usage) const;
  void reply_chunk(std::string& out, int32_t index, const ReplyPiece& piece, const Usage& usage) const;
  void append_reasoning(std::string& out, std::string_view text) const;
  void append_message(std::string& out, const WholeChoice& choice) const;
  void append_choice(std::string& out, int32_t index, const WholeChoice& choice) const;
  void append_prompt_logprobs(std::string& out, const Prompt& prompt, const std::vector<TokenLogprobs>& scores) const;
  void append_ranked(std::string& out, int32_t id, float logprob, int32_t rank) const;
  void append_logprobs(std::string& out, const std::vector<ShownToken>& shown, std::string_view echo) const;
  void append_chat_logprobs(std::string& out, const std::vector<ShownToken>& shown) const;
  void append_completion_logprobs(std::string& out, const std::vector<ShownToken>& shown, int64_t offset) const;
  void append_best(std::string& out, const ShownToken& token) const;
  void append_logprob(std::string& out, float value) const;
  void append_token(std::string& out, int32_t id) const;
  void append_scored(std::string& out, int32_t id, float logprob) const;
  /// Of a choice that is streamed.
  const Prompt& prompt_of(int32_t index) const {
    return generation_.prompts[static_cast<size_t>(index / generation_.params.n)];
  }
  std::string_view token_bytes(int32_t id) const { return tokenizer_.token_bytes(id); }

  const Generation& generation_;
  const Tokenizer& tokenizer_;
  const ReasoningFields reasoning_fields_;
  std::string chunk_head_;  // up to and with "choices":[
  std::string whole_head_;
};

void append_usage(std::string& out, const Usage& usage);
int64_t utf8_length(std::string_view text);

}  // namespace quern
