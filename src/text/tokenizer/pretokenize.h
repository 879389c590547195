// PreTokenizer: cuts a normalized text into the pieces that the subword model sees one by one. Immutable once made; any
// thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/pattern/regex.h"

namespace quern {

/// A text being cut.
struct Pieces {
  std::string_view text;      // of the caller, or `storage`
  std::vector<Span> spans;    // the pieces, none of them empty
  bool at_start = true;       // whether `text` begins where the whole text begins
  bool bytes_mapped = false;  // whether `text` is in the byte alphabet
  std::string storage;

  void own(std::string changed) {
    storage = std::move(changed);
    text = storage;
  }
};

class Cut {
 public:
  virtual ~Cut() = default;
  virtual Status apply(Pieces& pieces) const = 0;
  /// Whether that takes time in proportion to the text.
  virtual bool is_linear() const { return true; }
};

class PreTokenizer {
 public:
  /// From the `pre_tokenizer` of a tokenizer.json; with null or nullptr the whole text is one piece.
  static Result<PreTokenizer> from_json(const Json* json);

  /// Cuts `pieces`, whose text is not mapped back from the byte alphabet before the last cut is done.
  Status apply(Pieces& pieces) const;
  /// Whether the model works on bytes, and its vocabulary is in the byte alphabet.
  bool byte_level() const { return byte_level_; }
  bool is_linear() const;
  /// The kinds of cuts, for people.
  const std::string& description() const { return description_; }

 private:
  Status add(const Json& json, bool last);
  Status add_byte_level(const Json& json, bool last);

  std::vector<std::unique_ptr<const Cut>> cuts_;
  bool byte_level_ = false;
  std::string description_;
};

}  // namespace quern
