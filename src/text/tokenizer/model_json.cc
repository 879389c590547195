#include "text/tokenizer/model_json.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/subword/bpe.h"
#include "text/subword/unigram.h"
#include "text/subword/word_models.h"

namespace quern {
namespace {

using Model = std::unique_ptr<const SubwordModel>;

constexpr double unknown_penalty = 10.0;  // an unknown character is that much worse than the worst token

constexpr std::pair<std::string_view, ModelType> types[] = {{"BPE", ModelType::bpe},
                                                            {"Unigram", ModelType::unigram},
                                                            {"WordPiece", ModelType::word_piece},
                                                            {"WordLevel", ModelType::word_level}};

/// The id of "unk_token", -1 where there is none.
Result<int32_t> unknown_token(const Json& model, const Vocabulary& vocabulary) {
  const std::optional<std::string> unknown = model.string("unk_token");
  if (!unknown) return -1;
  const int32_t id = vocabulary.find_text(*unknown);
  if (id < 0) return Error{fmt::format("tokenizer.json: unk_token \"{}\" is not in the vocabulary", *unknown)};
  return id;
}

Result<Model> bpe_from(const TokenizerFile& file, const Json& model, const Vocabulary& vocabulary) {
  BpeOptions options;
  options.byte_fallback = model.boolean("byte_fallback").value_or(false);
  options.fuse_unknown = model.boolean("fuse_unk").value_or(false);
  options.ignore_merges = model.boolean("ignore_merges").value_or(false);
  options.continuation = model.string("continuing_subword_prefix").value_or("");
  options.piece_end = model.string("end_of_word_suffix").value_or("");
  ASSIGN_OR_RETURN(options.unknown, unknown_token(model, vocabulary));
  auto bpe = std::make_unique<Bpe>(vocabulary, options, file.merges.size());
  for (const auto& [left, right] : file.merges) TRY(bpe->add_merge(left, right));
  return Model(std::move(bpe));
}

Result<Model> unigram_from(const TokenizerFile& file, const Json& model, const Vocabulary& vocabulary) {
  const std::optional<int64_t> unknown = model.integer("unk_id");
  if (!unknown || *unknown < 0 || *unknown >= static_cast<int64_t>(file.pieces.size())) {
    return Error{"tokenizer.json: Unigram lacks an \"unk_id\" of its vocabulary"};
  }
  std::vector<double> scores;
  for (const auto& [piece, score] : file.pieces) scores.push_back(score);
  UnigramOptions options;
  options.unknown = static_cast<int32_t>(*unknown);
  options.unknown_score = std::ranges::min(scores) - unknown_penalty;
  options.byte_fallback = model.boolean("byte_fallback").value_or(false);
  ASSIGN_OR_RETURN(auto unigram, Unigram::make(vocabulary, options, std::move(scores)));
  return Model(std::move(unigram));
}

Result<Model> word_piece_from(const Json& model, const Vocabulary& vocabulary) {
  WordPieceOptions options;
  ASSIGN_OR_RETURN(options.unknown, unknown_token(model, vocabulary));
  options.continuation = model.string("continuing_subword_prefix").value_or("##");
  options.max_characters = model.integer("max_input_chars_per_word").value_or(100);
  ASSIGN_OR_RETURN(auto made, WordPiece::make(vocabulary, options));
  return Model(std::move(made));
}

}  // namespace

std::string_view name_of(ModelType type) {
  const auto* const found = std::ranges::find(types, type, &std::pair<std::string_view, ModelType>::second);
  return found->first;
}

Result<ModelType> model_type(const TokenizerFile& file) {
  const Json* model = file.rest.find("model");
  if (model == nullptr || !model->is_object()) return Error{"tokenizer.json has no \"model\""};
  const auto read = [model](std::string_view key) {
    const Json* value = model->find(key);
    return value != nullptr && value->is_null();
  };
  // Old files do not say what they are.
  const std::string_view guess = !file.pieces.empty()                     ? "Unigram"
                                 : model->has("max_input_chars_per_word") ? "WordPiece"
                                                                          : "BPE";
  const std::string type = model->string("type").value_or(std::string(guess));
  const auto* const known = std::ranges::find(types, type, &std::pair<std::string_view, ModelType>::first);
  if (known == std::end(types)) return Error{fmt::format("tokenizer.json: model \"{}\" is not supported", type)};
  const bool scored = known->second == ModelType::unigram;
  if (!read("vocab") || scored == file.pieces.empty())
    return Error{fmt::format("tokenizer.json: {} lacks \"vocab\"", type)};
  if (known->second == ModelType::bpe && !read("merges")) return Error{"tokenizer.json: BPE lacks \"merges\""};
  return known->second;
}

Result<Model> model_from_json(const TokenizerFile& file, ModelType type, const Vocabulary& vocabulary) {
  const Json& model = *file.rest.find("model");
  if (type == ModelType::bpe) return bpe_from(file, model, vocabulary);
  if (type == ModelType::unigram) return unigram_from(file, model, vocabulary);
  if (type == ModelType::word_piece) return word_piece_from(model, vocabulary);
  ASSIGN_OR_RETURN(const int32_t unknown, unknown_token(model, vocabulary));
  return Model(std::make_unique<WordLevel>(vocabulary, unknown));
}

}  // namespace quern
