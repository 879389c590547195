// SubwordModel: a piece of text -> tokens. One implementation per kind of vocabulary. Immutable once made; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace quern {

class SubwordModel {
 public:
  virtual ~SubwordModel() = default;
  /// Appends the tokens of `piece`, which is not empty: bytes in byte-level vocabularies, else valid UTF-8.
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids) const = 0;
};

}  // namespace quern
