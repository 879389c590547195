// TokenizerFile: a tokenizer.json, its two large lists read without a tree of values.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace quern {

struct TokenizerFile {
  Json rest;  // all but `model.vocab` and `model.merges`, which are null in it when they were read into the lists below
  std::vector<std::pair<std::string_view, int64_t>> vocabulary;
  std::vector<std::pair<std::string_view, double>> pieces;  // by id, where the vocabulary is a list with scores
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  std::deque<std::string> unescaped;  // what views above point into, unless it is the text itself
};

/// `text` must outlive the result.
Result<TokenizerFile> read_tokenizer_file(std::string_view text);

}  // namespace quern
