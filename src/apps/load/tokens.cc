#include "apps/load/tokens.h"

#include <algorithm>
#include <fmt/format.h>

#include "apps/hub/resolve.h"
#include "apps/loader_text.h"

namespace quern {
namespace {

constexpr size_t enough_pieces = 2048;
constexpr size_t few_words = 64;

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

/// A word, or a space and a word: texts of them are cut where they were joined.
bool is_word(std::string_view bytes, bool after_space) {
  if (after_space != bytes.starts_with(' ')) return false;
  if (after_space) bytes.remove_prefix(1);
  return !bytes.empty() && std::ranges::all_of(bytes, is_lower);
}

}  // namespace

Result<LoadTokens> LoadTokens::open(const std::string& model) {
  const bool is_file = model.ends_with(".json") || model.ends_with(".model");
  FoundModel found{model, model};
  if (!is_file) {
    ASSIGN_OR_RETURN(found, find_model(model, ""));
  }
  ASSIGN_OR_RETURN(auto tokenizer, load_tokenizer_at(found.path));
  return LoadTokens(std::move(tokenizer));
}

LoadTokens::LoadTokens(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {
  for (int32_t id = 0; id < tokenizer_->size(); ++id) {
    if (!tokenizer_->is_special(id) && !tokenizer_->token_bytes(id).empty()) ids_.push_back(id);
  }
  for (const bool after_space : {true, false}) {
    if (pieces_.size() >= few_words) break;
    pieces_.clear();
    for (const int32_t id : ids_) {
      std::string piece(tokenizer_->token_bytes(id));
      if (!is_word(piece, after_space) || count(piece + piece) != count(piece) + 1) continue;
      pieces_.push_back(std::move(piece));
      if (pieces_.size() == enough_pieces) break;
    }
  }
  const auto nothing = tokenizer_->encode("", {});
  if (nothing.ok()) around_ = static_cast<int>(nothing->size());
}

std::vector<int32_t> LoadTokens::encode(std::string_view text) const {
  auto ids = tokenizer_->encode(text, {.add_special = false});
  return ids.ok() ? std::move(*ids) : std::vector<int32_t>();
}

int LoadTokens::count(std::string_view text) const { return static_cast<int>(encode(text).size()); }

int32_t LoadTokens::draw_id(std::mt19937_64& random) const {
  if (ids_.empty()) return 0;
  return ids_[std::uniform_int_distribution<size_t>(0, ids_.size() - 1)(random)];
}

Result<std::string> LoadTokens::draw_text(std::string start, int tokens, std::mt19937_64& random) const {
  constexpr int most_tries = 100;
  std::vector<size_t> ends = {start.size()};  // of the start and of each piece
  int missing = tokens - count(start);
  for (int tries = 0; missing != 0 && tries < most_tries && !pieces_.empty(); ++tries) {
    for (; missing < 0 && ends.size() > 1; ++missing) ends.pop_back();
    start.resize(ends.back());
    for (; missing > 0; --missing) {
      std::string_view piece = pieces_[std::uniform_int_distribution<size_t>(0, pieces_.size() - 1)(random)];
      if (start.empty() && piece.starts_with(' ')) piece.remove_prefix(1);
      start += piece;
      ends.push_back(start.size());
    }
    missing = tokens - count(start);
  }
  if (missing == 0) return start;
  return Error{
      fmt::format("no text of exactly {} tokens was found for this tokenizer; ask for another length", tokens)};
}

std::vector<int> LoadTokens::by_chunk(std::string_view text, std::span<const int> chunk_bytes) const {
  std::vector<int> tokens(chunk_bytes.size(), 0);
  if (chunk_bytes.empty()) return tokens;
  size_t chunk = 0;
  int64_t chunk_end = chunk_bytes[0];
  int64_t at = 0;
  for (const int32_t id : encode(text)) {
    const auto bytes = at == 0 ? tokenizer_->first_token_bytes(id) : tokenizer_->token_bytes(id);
    at += static_cast<int64_t>(bytes.size());
    while (at > chunk_end && chunk + 1 < tokens.size()) chunk_end += chunk_bytes[++chunk];
    ++tokens[chunk];
  }
  return tokens;
}

}  // namespace quern
