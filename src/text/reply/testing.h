// For tests and fuzzing: a vocabulary of markers, and replies read in pieces.
#pragma once

#include <fmt/format.h>
#include <string>
#include <string_view>
#include <vector>

#include "text/reply/reply_parser.h"
#include "text/tokenizer.h"

namespace quern {

/// Knows special tokens and nothing else.
class MarkerVocabulary : public Tokenizer {
 public:
  explicit MarkerVocabulary(std::vector<std::string_view> specials) : specials_(std::move(specials)) {}

  Result<std::vector<int32_t>> encode(std::string_view, const EncodeOptions&) const override {
    return std::vector<int32_t>();
  }
  Result<std::vector<int32_t>> encode_pieces(std::span<const TextPiece>, bool) const override {
    return std::vector<int32_t>();
  }
  std::string decode(std::span<const int32_t>, bool) const override { return {}; }
  std::string_view token_bytes(int32_t id) const override { return token_text(id); }
  std::string_view token_text(int32_t id) const override {
    return id >= 0 && id < static_cast<int32_t>(specials_.size()) ? specials_[static_cast<size_t>(id)]
                                                                  : std::string_view();
  }
  std::optional<int32_t> id_of(std::string_view token_text) const override {
    for (int32_t id = 0; id < static_cast<int32_t>(specials_.size()); ++id) {
      if (specials_[static_cast<size_t>(id)] == token_text) return id;
    }
    return std::nullopt;
  }
  bool is_special(int32_t) const override { return true; }
  int size() const override { return static_cast<int>(specials_.size()); }
  std::optional<int32_t> bos() const override { return std::nullopt; }
  std::optional<int32_t> eos() const override { return std::nullopt; }
  bool strips_leading_space() const override { return false; }
  std::span<const int32_t> end_of_generation() const override { return {}; }
  std::string description() const override { return "markers"; }

 private:
  std::vector<std::string_view> specials_;
};

/// A whole reply.
struct ReadReply {
  struct Call {
    std::string name;
    std::string arguments;
    std::string id;
    bool operator==(const Call&) const = default;
  };
  std::string content;
  std::string reasoning;
  std::vector<Call> calls;
  bool operator==(const ReadReply&) const = default;

  void add(const std::vector<ReplyPiece>& pieces) {
    for (const ReplyPiece& piece : pieces) {
      switch (piece.kind) {
        case ReplyPiece::Kind::content: content += piece.text; break;
        case ReplyPiece::Kind::reasoning: reasoning += piece.text; break;
        case ReplyPiece::Kind::call:
          CHECK(piece.call == static_cast<int32_t>(calls.size()));
          calls.push_back({piece.text, "", piece.id});
          break;
        case ReplyPiece::Kind::arguments:
          CHECK(piece.call == static_cast<int32_t>(calls.size()) - 1);
          calls.back().arguments += piece.text;
      }
    }
  }
  /// For messages of tests.
  std::string shown() const {
    std::string out = fmt::format("content <{}> reasoning <{}>", content, reasoning);
    for (const Call& call : calls) out += fmt::format(" call {} <{}> id <{}>", call.name, call.arguments, call.id);
    return out;
  }
};

/// Reads `text` cut at `cuts`, which rise.
inline ReadReply read_reply(const ReplyFormat& format, const ReplyOptions& options, std::string_view text,
                            const std::vector<size_t>& cuts = {}) {
  ReplyParser parser(format, options);
  ReadReply reply;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    reply.add(parser.add(text.substr(begin, cut - begin)));
    begin = cut;
  }
  reply.add(parser.add(text.substr(begin)));
  reply.add(parser.finish());
  return reply;
}

}  // namespace quern
