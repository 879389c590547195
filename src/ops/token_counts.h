// TokenCounts: which tokens a row's text holds and how often, for penalties. A few bytes per distinct token, however
// large the vocabulary is. Thread: executor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace quern {

struct TokenCount {
  int32_t token = 0;
  int32_t outputs = 0;  // times it was generated; 0: it is in the prompt only
};

/// Entries lie densely in order of first appearance; an open-addressing index of powers of two finds them.
class TokenCounts {
 public:
  void add_prompt(std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) find(token);
  }
  void add_output(int32_t token) { ++find(token).outputs; }
  void clear() {
    entries_.clear();
    index_.clear();
  }

  /// One per distinct token.
  std::span<const TokenCount> entries() const { return entries_; }

 private:
  TokenCount& find(int32_t token) {
    if (2 * (entries_.size() + 1) > index_.size()) grow();
    size_t slot = place(token);
    while (index_[slot] >= 0) {
      TokenCount& entry = entries_[static_cast<size_t>(index_[slot])];
      if (entry.token == token) return entry;
      slot = (slot + 1) & (index_.size() - 1);
    }
    index_[slot] = static_cast<int32_t>(entries_.size());
    return entries_.emplace_back(TokenCount{token, 0});
  }

  void grow() {
    index_.assign(index_.empty() ? 64 : 2 * index_.size(), -1);
    for (size_t i = 0; i < entries_.size(); ++i) {
      size_t slot = place(entries_[i].token);
      while (index_[slot] >= 0) slot = (slot + 1) & (index_.size() - 1);
      index_[slot] = static_cast<int32_t>(i);
    }
  }

  size_t place(int32_t token) const {
    return ((static_cast<uint32_t>(token) * 0x9E3779B1U) >> 7) & (index_.size() - 1);
  }

  std::vector<TokenCount> entries_;
  std::vector<int32_t> index_;  // into entries_, -1 where empty
};

}  // namespace quern
