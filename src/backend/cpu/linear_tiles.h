// Tiles: tokens are computed a few at a time, as many as the registers hold sums for.
#pragma once

#include <type_traits>

#include "backend/cpu/linear_lanes.h"

namespace quern::QUERN_ISA::panels {

/// Up to so many tokens weights of most formats are unpacked in registers for every tile; above, blocks of them once
/// for all tiles.
inline constexpr int most_few_tokens = lanes == 16 ? 64 : 16;
inline constexpr int few_tile = 8;                     // a vector of rows times these fills the registers
inline constexpr int many_tile = lanes == 16 ? 8 : 6;  // two vectors of rows times these do

constexpr int tiles_of(int tokens) {
  const int most = tokens <= most_few_tokens ? few_tile : many_tile;
  return (tokens + most - 1) / most;
}
/// Tiles are of about equal size; tile i has the tokens [tile_begin(i), tile_begin(i + 1)).
constexpr int tile_begin(int tokens, int tile) { return tile * tokens / tiles_of(tokens); }
constexpr int tile_of(int tokens, int token) { return ((token + 1) * tiles_of(tokens) - 1) / tokens; }

/// Calls use(integral_constant tokens) for a number known only now, at most `Most`.
template <int Most, typename Use>
QUERN_INLINE void with_tile_size(int tokens, Use&& use) {
  if constexpr (Most > 0) {
    if (tokens == Most) return use(std::integral_constant<int, Most>{});
    with_tile_size<Most - 1>(tokens, use);
  }
}

/// Calls use(first token, integral_constant tokens) for every tile; none is larger than `Most`.
template <int Most, typename Use>
QUERN_INLINE void for_each_tile(int tokens, Use&& use) {
  for (int tile = 0; tile < tiles_of(tokens); ++tile) {
    const int first = tile_begin(tokens, tile);
    with_tile_size<Most>(tile_begin(tokens, tile + 1) - first, [&](auto size) { use(first, size); });
  }
}

}  // namespace quern::QUERN_ISA::panels
