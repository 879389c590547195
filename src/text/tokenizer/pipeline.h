// Pipeline: the tokenizer whose parts both file kinds describe: added tokens, normalizer, pre-tokenizer, subword model,
// frame and decoder. Immutable once made; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/subword/subword_model.h"
#include "text/subword/vocabulary.h"
#include "text/tokenizer.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decode.h"
#include "text/tokenizer/normalize.h"
#include "text/tokenizer/postprocess.h"
#include "text/tokenizer/pretokenize.h"

namespace quern {

struct PipelineParts {
  std::unique_ptr<const Vocabulary> vocabulary;
  std::unique_ptr<const SubwordModel> model;  // refers to the vocabulary
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::vector<AddedToken> added;
  Frame frame;
  TokenDecoder decoder;
  bool stays_at_start = false;  // of a decoded text, after tokens that add nothing there
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::vector<int32_t> end_of_generation;  // besides those that the spelling tells
  std::optional<FillInTokens> fill_in;
  std::string description;
};

/// Refuses ids that the vocabulary does not have and added tokens that are too long.
Result<std::shared_ptr<const Tokenizer>> make_pipeline(PipelineParts parts);

}  // namespace quern
