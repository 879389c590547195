// TokenCounts: which tokens a row's text holds and how often, for penalties. A few bytes per distinct token, however
// large the vocabulary is. Thread: executor.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace quern {

struct TokenCount {
  int32_t token = 0;
  int32_t outputs = 0;  // times it was generated; 0: it is in the prompt only
};

/// Entries lie densely; an open-addressing index of powers of two finds them.
class TokenCounts {
 public:
  void add_prompt(std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) ++uses_[find(token)];
  }
  void add_output(int32_t token) {
    const size_t entry = find(token);
    ++uses_[entry];
    ++entries_[entry].outputs;
  }
  /// Takes back one use that was added.
  void remove(int32_t token, bool output) {
    const size_t entry = find(token);
    if (output) --entries_[entry].outputs;
    if (--uses_[entry] == 0) erase(entry);
  }
  void clear() {
    entries_.clear();
    uses_.clear();
    index_.clear();
  }

  /// One per distinct token.
  std::span<const TokenCount> entries() const { return entries_; }

 private:
  /// The entry of a token; made when there is none.
  size_t find(int32_t token) {
    if (2 * (entries_.size() + 1) > index_.size()) grow();
    const size_t slot = slot_of(token);
    if (index_[slot] < 0) {
      index_[slot] = static_cast<int32_t>(entries_.size());
      entries_.push_back({token, 0});
      uses_.push_back(0);
    }
    return static_cast<size_t>(index_[slot]);
  }

  /// Where the index names the token, or would.
  size_t slot_of(int32_t token) const {
    size_t slot = place(token);
    while (index_[slot] >= 0 && entries_[static_cast<size_t>(index_[slot])].token != token) slot = next(slot);
    return slot;
  }

  /// The last entry takes its place, and what the index has behind it moves up as far as it may.
  void erase(size_t entry) {
    size_t hole = slot_of(entries_[entry].token);
    index_[slot_of(entries_.back().token)] = static_cast<int32_t>(entry);
    index_[hole] = -1;
    entries_[entry] = entries_.back();
    uses_[entry] = uses_.back();
    entries_.pop_back();
    uses_.pop_back();
    for (size_t slot = next(hole); index_[slot] >= 0; slot = next(slot)) {
      const size_t home = place(entries_[static_cast<size_t>(index_[slot])].token);
      const size_t mask = index_.size() - 1;
      if (((slot - home) & mask) < ((slot - hole) & mask)) continue;  // it would come before its home
      index_[hole] = std::exchange(index_[slot], -1);
      hole = slot;
    }
  }

  void grow() {
    index_.assign(index_.empty() ? 64 : 2 * index_.size(), -1);
    for (size_t i = 0; i < entries_.size(); ++i) {
      index_[slot_of(entries_[i].token)] = static_cast<int32_t>(i);
    }
  }

  size_t place(int32_t token) const {
    return ((static_cast<uint32_t>(token) * 0x9E3779B1U) >> 7) & (index_.size() - 1);
  }

  size_t next(size_t slot) const { return (slot + 1) & (index_.size() - 1); }

  std::vector<TokenCount> entries_;
  std::vector<int32_t> uses_;   // by entry: how often it was added
  std::vector<int32_t> index_;  // into entries_, -1 where empty
};

}  // namespace quern
