// Normalizer: what a tokenizer changes in a text before cutting it. Immutable once made; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace quern {

/// One change of a text. It takes and leaves valid UTF-8.
class Normalization {
 public:
  virtual ~Normalization() = default;
  virtual Status apply(std::string& text) const = 0;
  /// Whether that takes time in proportion to the text.
  virtual bool is_linear() const { return true; }
};

class Normalizer {
 public:
  /// From the `normalizer` of a tokenizer.json; null or nullptr changes nothing.
  static Result<Normalizer> from_json(const Json* json);

  /// One more change, after the others.
  void add(std::unique_ptr<const Normalization> step);

  /// `at_start` becomes false when the text loses its first character.
  Status apply(std::string& text, bool* at_start = nullptr) const;
  bool is_linear() const;
  bool changes_nothing() const { return steps_.empty(); }
  /// Whether the text comes out in the byte alphabet.
  bool maps_bytes() const { return maps_bytes_; }

 private:
  Status add(const Json& json);
  void add_bert(const Json& json);

  std::vector<std::unique_ptr<const Normalization>> steps_;
  bool maps_bytes_ = false;
};

}  // namespace quern
