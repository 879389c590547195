// Wire: writes the JSON of answers, whole and in chunks. Appends to strings; no JSON library. One answer's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/answer.h"
#include "server/openai/generation.h"
#include "text/tokenizer.h"

namespace quern {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
};

/// A finished choice of a whole answer.
struct WholeChoice {
  std::string text;
  std::vector<ShownToken> shown;
  std::vector<int32_t> token_ids;
  AnswerEnd end;
};

class Wire {
 public:
  struct Identity {
    std::string id;
    std::string fingerprint;
    int64_t created = 0;
  };

  Wire(const Generation& generation, const Tokenizer& tokenizer, const Identity& identity);

  /// The role chunk of a chat choice, or the echoed prompt of a completion; nothing for a completion without echo.
  void first_chunk(std::string& out, int32_t index, const Prompt& prompt, const Usage& usage) const;
  /// The chunk or chunks for what an event added; nothing when it added nothing to be seen.
  void chunk(std::string& out, int32_t index, const AnswerPiece& piece, const Usage& usage) const;
  void usage_chunk(std::string& out, const Usage& usage) const;

  std::string whole(const std::vector<WholeChoice>& choices, const Usage& usage) const;

 private:
  void begin_chunk(std::string& out, int32_t index) const;
  void end_chunk(std::string& out, const AnswerEnd* end, const std::vector<int32_t>* token_ids,
                 const Usage& usage) const;
  void append_choice(std::string& out, int32_t index, const WholeChoice& choice) const;
  void append_logprobs(std::string& out, const std::vector<ShownToken>& shown) const;
  void append_chat_logprobs(std::string& out, const std::vector<ShownToken>& shown) const;
  void append_completion_logprobs(std::string& out, const std::vector<ShownToken>& shown) const;
  void append_best(std::string& out, const ShownToken& token) const;
  void append_token(std::string& out, int32_t id) const;
  void append_scored(std::string& out, int32_t id, float logprob) const;
  std::string_view token_bytes(int32_t id) const { return tokenizer_.token_bytes(id); }

  const Generation& generation_;
  const Tokenizer& tokenizer_;
  std::string chunk_head_;  // up to and with "choices":[
  std::string whole_head_;
};

void append_usage(std::string& out, const Usage& usage);
int64_t utf8_length(std::string_view text);

}  // namespace quern
