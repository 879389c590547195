// Trie: a set of byte strings that is walked byte by byte; a double array. Immutable once made; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace quern {

class Trie {
 public:
  struct Key {
    std::string_view text;
    int32_t value = 0;  // >= 0
  };
  static constexpr int32_t root = 0;

  Trie() : nodes_(1) {}
  /// Longer keys are refused: a text is walked along them from each of its places.
  static constexpr size_t max_key_bytes = 1024;

  /// Of equal texts the highest value counts; an empty text is ignored.
  static Result<Trie> make(std::vector<Key> keys);

  /// The node one byte below `node`, or -1.
  int32_t step(int32_t node, char byte) const {
    const auto next = static_cast<size_t>(nodes_[static_cast<size_t>(node)].base ^ static_cast<unsigned char>(byte));
    return next < nodes_.size() && nodes_[next].parent == node ? static_cast<int32_t>(next) : -1;
  }
  /// The node below `node` that `text` leads to, or -1.
  int32_t walk(int32_t node, std::string_view text) const;
  /// The value of the text that ends at `node`, or -1.
  int32_t value(int32_t node) const { return nodes_[static_cast<size_t>(node)].value; }

 private:
  struct Node {
    int32_t base = 0;     // a child's place is base ^ its byte
    int32_t parent = -1;  // -1 where the place is free, and for the root
    int32_t value = -1;
  };
  class Builder;

  std::vector<Node> nodes_;
};

}  // namespace quern
