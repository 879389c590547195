// Charsmap: the table by which SentencePiece normalizes text, a double array of bytes that leads to replacements.
// Immutable once made; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer/normalize.h"

namespace quern {

class Charsmap {
 public:
  struct Match {
    size_t length = 0;  // of the replaced bytes
    std::string_view replacement;
  };

  /// `bytes`: the size of the array in bytes (32 bits), the array, then strings that each end with a zero byte.
  static Result<Charsmap> make(std::string_view bytes);

  /// What the shortest replaceable start of `text` becomes, if there is one; or the longest.
  std::optional<Match> shortest(std::string_view text) const { return find(text, false); }
  std::optional<Match> longest(std::string_view text) const { return find(text, true); }
  /// Whether something longer than `text` that starts with it may be replaceable.
  bool leads_on(std::string_view text) const;

 private:
  std::optional<Match> find(std::string_view text, bool longest) const;

  std::vector<uint32_t> units_;
  std::string strings_;
};

/// The normalizer "Precompiled" of tokenizer.json: replaces by the shortest match of a short grapheme cluster, or else
/// of its characters.
std::unique_ptr<const Normalization> precompiled_normalization(Charsmap charsmap);

Result<std::string> decode_base64(std::string_view text);

}  // namespace quern
