#include "text/subword/trie.h"

#include <algorithm>
#include <fmt/format.h>
#include <tuple>

namespace quern {
namespace {

constexpr size_t max_nodes = size_t{1} << 27;
constexpr int tries_per_node = 24;  // free places looked at before a node's children go to the end of the array

}  // namespace

/// Free places form a list, so that most nodes fill holes.
class Trie::Builder {
 public:
  explicit Builder(std::vector<Key> keys) : keys_(std::move(keys)) {
    std::erase_if(keys_, [](const Key& key) { return key.text.empty(); });
    std::ranges::sort(keys_, {}, [](const Key& key) { return std::tie(key.text, key.value); });
    grow();
    take(0, -1);
  }

  Result<Trie> run() {
    pending_.push_back({0, 0, static_cast<uint32_t>(keys_.size()), 0});
    while (!pending_.empty()) {
      const Pending range = pending_.back();
      pending_.pop_back();
      place_children(range);
      if (nodes_.size() > max_nodes) return Error{"the tokenizer's vocabulary is too large"};
    }
    Trie made;
    made.nodes_ = std::move(nodes_);
    return made;
  }

 private:
  struct Pending {
    int32_t node;
    uint32_t first, last;  // its keys, which all start with the same `depth` bytes
    uint32_t depth;
  };
  struct Free {
    int32_t before, after;
  };

  void grow() {
    const auto begin = static_cast<int32_t>(nodes_.size());
    nodes_.resize(nodes_.size() + 256);
    free_.resize(nodes_.size());
    for (int32_t place = begin; place < begin + 256; ++place) {
      free_[static_cast<size_t>(place)] = {last_free_, -1};
      (last_free_ < 0 ? first_free_ : free_[static_cast<size_t>(last_free_)].after) = place;
      last_free_ = place;
    }
    taken_.resize(nodes_.size());
  }

  void take(int32_t place, int32_t parent) {
    const Free links = free_[static_cast<size_t>(place)];
    (links.before < 0 ? first_free_ : free_[static_cast<size_t>(links.before)].after) = links.after;
    (links.after < 0 ? last_free_ : free_[static_cast<size_t>(links.after)].before) = links.before;
    nodes_[static_cast<size_t>(place)].parent = parent;
    taken_[static_cast<size_t>(place)] = true;
  }

  void place_children(const Pending& range) {
    uint32_t first = range.first;
    while (first < range.last && keys_[first].text.size() == range.depth) {
      nodes_[static_cast<size_t>(range.node)].value = keys_[first++].value;
    }
    bytes_.clear();
    for (uint32_t i = first; i < range.last; ++i) {
      const auto byte = static_cast<unsigned char>(keys_[i].text[range.depth]);
      if (bytes_.empty() || bytes_.back().byte != byte) bytes_.push_back({byte, i});
    }
    if (bytes_.empty()) return;
    const int32_t base = find_base();
    nodes_[static_cast<size_t>(range.node)].base = base;
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const int32_t child = base ^ bytes_[i].byte;
      take(child, range.node);
      const uint32_t last = i + 1 < bytes_.size() ? bytes_[i + 1].first : range.last;
      pending_.push_back({child, bytes_[i].first, last, range.depth + 1});
    }
  }

  int32_t find_base() {
    int tries = 0;
    for (int32_t place = first_free_; place >= 0 && tries < tries_per_node;
         place = free_[static_cast<size_t>(place)].after, ++tries) {
      const int32_t base = place ^ bytes_[0].byte;
      const bool fits =
          std::ranges::all_of(bytes_, [&](Child child) { return !taken_[static_cast<size_t>(base ^ child.byte)]; });
      if (fits) return base;
    }
    // The places at the front have been tried often enough: they stay free, out of the list.
    for (; tries > tries_per_node / 2; --tries) take(first_free_, -1);
    const auto base = static_cast<int32_t>(nodes_.size());
    grow();
    return base;
  }

  struct Child {
    unsigned char byte;
    uint32_t first;
  };
  std::vector<Key> keys_;
  std::vector<Node> nodes_;
  std::vector<Free> free_;
  std::vector<bool> taken_;
  std::vector<Pending> pending_;
  std::vector<Child> bytes_;
  int32_t first_free_ = -1;
  int32_t last_free_ = -1;
};

Result<Trie> Trie::make(std::vector<Key> keys) {
  for (const Key& key : keys) {
    if (key.text.size() <= max_key_bytes) continue;
    return Error{
        fmt::format("tokenizer: a token has {} bytes; at most {} are supported", key.text.size(), max_key_bytes)};
  }
  return Builder(std::move(keys)).run();
}

int32_t Trie::walk(int32_t node, std::string_view text) const {
  for (const char byte : text) {
    if (node < 0) break;
    node = step(node, byte);
  }
  return node;
}

}  // namespace quern
