// PieceCache: the tokens of short pieces of text, most of which come again and again. One per thread, shared by all
// models.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "text/subword/hash.h"

namespace quern {

/// Tells apart the models whose pieces are in one thread's cache.
inline uint32_t next_piece_owner() {
  static std::atomic<uint32_t> last{0};
  return ++last;
}

struct alignas(64) CachedPiece {
  uint32_t owner = 0;  // 0 for none
  uint8_t length = 0;
  uint8_t count = 0;
  char text[26] = {};
  int32_t ids[8] = {};
};

/// Appends the tokens of `piece`: those remembered, or else what `encode(piece, ids)` appends.
template <typename Encode>
void encode_cached(uint32_t owner, std::string_view piece, std::vector<int32_t>& ids, Encode encode) {
  constexpr size_t slots_per_thread = 16384;  // 1 MiB
  constexpr size_t longest = sizeof(CachedPiece::text);
  constexpr size_t most = sizeof(CachedPiece::ids) / sizeof(int32_t);
  if (piece.size() > longest) return encode(piece, ids);
  thread_local const auto slots = std::make_unique<CachedPiece[]>(slots_per_thread);
  CachedPiece& slot = slots[hash_bytes(piece) >> (64 - std::countr_zero(slots_per_thread))];
  if (slot.owner == owner && std::string_view(slot.text, slot.length) == piece) {
    ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
    return;
  }
  const size_t before = ids.size();
  encode(piece, ids);
  const size_t count = ids.size() - before;
  if (count > most) return;
  slot.owner = owner;
  slot.length = static_cast<uint8_t>(piece.size());
  slot.count = static_cast<uint8_t>(count);
  std::memcpy(slot.text, piece.data(), piece.size());
  std::memcpy(slot.ids, ids.data() + before, count * sizeof(int32_t));
}

}  // namespace quern
