// The subword model of a tokenizer.json.
#pragma once

#include <memory>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "text/subword/subword_model.h"
#include "text/subword/vocabulary.h"
#include "text/tokenizer/tokenizer_file.h"

namespace quern {

enum class ModelType : uint8_t { bpe, unigram, word_piece, word_level };

std::string_view name_of(ModelType type);

/// Refuses models that are not known or lack their lists.
Result<ModelType> model_type(const TokenizerFile& file);

/// `vocabulary` must outlive the model.
Result<std::unique_ptr<const SubwordModel>> model_from_json(const TokenizerFile& file, ModelType type,
                                                            const Vocabulary& vocabulary);

}  // namespace quern
