// OllamaWire: answers as Ollama has them: one JSON object, or a line each time that something is to be said. One
// answer's thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/wire.h"
#include "text/tokenizer.h"

namespace quern {

struct OllamaForm final : AnswerForm {
  OllamaForm(bool is_chat, bool gives_context) : chat(is_chat), context(gives_context) {}
  std::unique_ptr<Wire> wire(const Generation& generation, const TextModel& model) const override;

  bool chat;
  bool context;  // the tokens so far go with the answer
};

class OllamaWire final : public Wire {
 public:
  OllamaWire(const Generation& generation, const TextModel& model, const OllamaForm& form);

  void first_chunk(std::string&, int32_t, const Prompt&, const std::vector<TokenLogprobs>&, const Usage&) override {}
  void chunk(std::string& out, int32_t index, const AnswerPiece& piece, const Usage& usage) override;
  void finish(std::string& out, const Usage& usage) override;
  void error(std::string& out, const ApiError& error) override;
  void ping(std::string& out) override;
  std::string whole(const std::vector<WholeChoice>& choices, const Usage& usage) override;

 private:
  /// What one object says.
  struct Said {
    std::string text;
    std::string thinking;
    std::string calls;  // the items of tool_calls
  };

  void line(std::string& out, const Said& said);
  void flush_call(std::string& out);
  void append_said(std::string& out, const Said& said) const;
  void append_logprobs(std::string& out, const std::vector<ShownToken>& shown) const;
  void append_scored(std::string& out, int32_t id, float logprob) const;
  void append_end(std::string& out, const AnswerEnd& end, const std::vector<int32_t>& made, const Usage& usage) const;
  std::string call_json(const WholeChoice::Call& call);

  const Generation& generation_;
  const Tokenizer& tokenizer_;
  const bool chat_;
  const bool context_;
  std::string logprobs_;  // of tokens that no line has told yet
  std::optional<WholeChoice::Call> call_;
  int calls_ = 0;
  std::vector<int32_t> made_;
  AnswerEnd end_;
};

/// An error as this protocol has it.
std::string ollama_error(const ApiError& error);
/// The answer to a request that only loads a model, or unloads it.
std::string ollama_loaded(const std::string& model, bool chat, bool unload);

}  // namespace quern
