// SentencePieceFile: what a SentencePiece model says, read from its protobuf.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quern {

struct SentencePieceFile {
  enum class Type : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  enum class Algorithm : uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };
  struct Piece {
    std::string text;
    float score = 0.0F;
    Type type = Type::normal;
  };

  std::vector<Piece> pieces;  // by id
  Algorithm algorithm = Algorithm::unigram;
  std::string bos_piece = "<s>";
  std::string eos_piece = "</s>";
  std::string unknown_surface = " \u2047 ";  // what an unknown token adds to a text
  bool byte_fallback = false;
  bool spaces_follow_words = false;
  std::string charsmap;
  bool add_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
};

Result<SentencePieceFile> read_sentence_piece_file(std::string_view bytes);

}  // namespace quern
