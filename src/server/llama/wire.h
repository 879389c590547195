// LlamaWire: answers of /completion and /infill as llama-server has them, whole or as events. One answer's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/wire.h"
#include "text/tokenizer.h"

namespace quern {

struct LlamaForm final : AnswerForm {
  std::unique_ptr<Wire> wire(const Generation& generation, const TextModel& model) const override;

  Json settings;                             // generation_settings
  bool tokens = false;                       // ids go with the text
  bool timings = false;                      // with every event
  bool several = false;                      // the whole answer is a list
  std::vector<std::string> response_fields;  // of the last object; none: all
};

class LlamaWire final : public Wire {
 public:
  LlamaWire(const Generation& generation, const TextModel& model, const LlamaForm& form);

  void first_chunk(std::string&, int32_t, const Prompt&, const std::vector<TokenLogprobs>&, const Usage&) override {}
  void chunk(std::string& out, int32_t index, const AnswerPiece& piece, const Usage& usage) override;
  void finish(std::string&, const Usage&) override {}
  void error(std::string& out, const ApiError& error) override;
  std::string whole(const std::vector<WholeChoice>& choices, const Usage& usage) override;

 private:
  /// One choice as it is being told.
  struct Told {
    int64_t tokens = 0;
    bool new_line = false;
  };

  /// The object that ends a choice, without its text.
  Json last(int32_t index, const Told& told, const AnswerEnd& end, const AnswerTimes& times) const;
  Json chosen_fields(Json object) const;
  Json timings(int64_t prompt_tokens, int64_t made, const AnswerTimes& times) const;
  Json probabilities(const std::vector<ShownToken>& shown) const;
  Json scored(int32_t id, float logprob) const;
  const Prompt& prompt_of(int32_t index) const {
    return generation_.prompts[static_cast<size_t>(index / generation_.params.n)];
  }

  const Generation& generation_;
  const Tokenizer& tokenizer_;
  const LlamaForm form_;
  const std::string model_;
  const int64_t context_;
  std::vector<Told> told_;
};

/// An error as this protocol has it.
std::string llama_error(const ApiError& error);

}  // namespace quern
