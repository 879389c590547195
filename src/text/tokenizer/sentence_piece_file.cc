#include "text/tokenizer/sentence_piece_file.h"

#include <cstring>
#include <fmt/format.h>
#include <optional>

#include "text/pattern/unicode.h"

namespace quern {
namespace {

/// One field of a protobuf message.
struct Field {
  uint64_t number = 0;
  uint64_t value = 0;      // of numbers, bit patterns for floats
  std::string_view bytes;  // of strings and messages
};

/// Walks over the fields of a message.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  bool more() const { return !rest_.empty(); }

  Result<Field> next() {
    enum Wire : uint64_t { varint = 0, fixed64 = 1, delimited = 2, fixed32 = 5 };
    ASSIGN_OR_RETURN(const uint64_t tag, read_varint());
    Field field{tag >> 3, 0, {}};
    switch (tag & 7) {
      case varint: {
        ASSIGN_OR_RETURN(field.value, read_varint());
        return field;
      }
      case fixed64: return read_fixed(field, 8);
      case fixed32: return read_fixed(field, 4);
      case delimited: {
        ASSIGN_OR_RETURN(const uint64_t size, read_varint());
        if (size > rest_.size()) return cut_short();
        field.bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return field;
      }
      default: return Error{"the SentencePiece model holds a field of an unknown kind"};
    }
  }

 private:
  static Error cut_short() { return Error{"the SentencePiece model ends within a field"}; }

  Result<uint64_t> read_varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return cut_short();
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return Error{"the SentencePiece model holds a number of more than 64 bits"};
  }

  Result<Field> read_fixed(Field field, size_t size) {
    if (rest_.size() < size) return cut_short();
    std::memcpy(&field.value, rest_.data(), size);
    rest_.remove_prefix(size);
    return field;
  }

  std::string_view rest_;
};

template <typename Read>
Status each_field(std::string_view message, Read read) {
  for (Fields fields(message); fields.more();) {
    ASSIGN_OR_RETURN(const Field field, fields.next());
    TRY(read(field));
  }
  return {};
}

Result<SentencePieceFile::Piece> read_piece(std::string_view message, size_t id) {
  SentencePieceFile::Piece piece;
  uint64_t type = 1;
  TRY(each_field(message, [&](const Field& field) -> Status {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2) std::memcpy(&piece.score, &field.value, sizeof piece.score);
    if (field.number == 3) type = field.value;
    return {};
  }));
  if (type < 1 || type > 6) return Error{fmt::format("piece {} of the SentencePiece model has type {}", id, type)};
  if (!is_utf8(piece.text)) return Error{fmt::format("piece {} of the SentencePiece model is no UTF-8", id)};
  piece.type = static_cast<SentencePieceFile::Type>(type);
  return piece;
}

Status read_trainer(std::string_view message, SentencePieceFile& file) {
  return each_field(message, [&file](const Field& field) -> Status {
    if (field.number == 3 && (field.value < 1 || field.value > 4)) {
      return Error{fmt::format("the SentencePiece model is of the unknown type {}", field.value)};
    }
    if (field.number == 3) file.algorithm = static_cast<SentencePieceFile::Algorithm>(field.value);
    if (field.number == 24) file.spaces_follow_words = field.value != 0;
    if (field.number == 35) file.byte_fallback = field.value != 0;
    if (field.number == 44) file.unknown_surface = repair_utf8(field.bytes);
    if (field.number == 46) file.bos_piece = field.bytes;
    if (field.number == 47) file.eos_piece = field.bytes;
    return {};
  });
}

Status read_normalizer(std::string_view message, SentencePieceFile& file) {
  return each_field(message, [&file](const Field& field) -> Status {
    if (field.number == 2) file.charsmap = field.bytes;
    if (field.number == 3) file.add_prefix = field.value != 0;
    if (field.number == 4) file.remove_extra_spaces = field.value != 0;
    if (field.number == 5) file.escape_spaces = field.value != 0;
    return {};
  });
}

}  // namespace

Result<SentencePieceFile> read_sentence_piece_file(std::string_view bytes) {
  SentencePieceFile file;
  TRY(each_field(bytes, [&file](const Field& field) -> Status {
    if (field.number == 1) {
      ASSIGN_OR_RETURN(auto piece, read_piece(field.bytes, file.pieces.size()));
      file.pieces.push_back(std::move(piece));
    }
    if (field.number == 2) return read_trainer(field.bytes, file);
    if (field.number == 3) return read_normalizer(field.bytes, file);
    return {};
  }));
  if (file.pieces.empty()) return Error{"the SentencePiece model has no pieces"};
  return file;
}

}  // namespace quern
