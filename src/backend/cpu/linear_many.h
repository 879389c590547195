// The product for many tokens: a block of a panel's columns is unpacked once and used for all tokens.
#pragma once

#include <type_traits>

#include "backend/cpu/linear_multiply.h"
#include "backend/cpu/linear_panels.h"

namespace quern::QUERN_ISA::panels {

inline constexpr int tile_tokens = lanes == 16 ? 8 : 6;  // two panels times these fill the registers
inline constexpr int block_records = 8;  // records unpacked at a time: they stay in the first-level cache

/// Unpacked columns of two panels of an integer format.
template <int Parts, bool HasMinimum>
struct IntegerBlock {
  Ints pairs[block_records][16][2];
  Floats scales[block_records][Parts][2];
  Floats minima[HasMinimum ? block_records : 1][2];
};
template <typename P>
using BlockOf = IntegerBlock<P::parts, P::has_minimum>;

struct FloatBlock {
  Floats columns[block_records][record_columns][2];
};

template <typename P, int Part>
QUERN_INLINE void unpack_part(const std::byte* record, const typename P::Header& header, BlockOf<P>& block, int r,
                              int panel) {
  const Ints zero = broadcast_short(P::zero);
  P::template pairs<Part>(record, [&]<int J>(Pair<J>, Ints weights) __attribute__((always_inline)) {
    block.pairs[r][J][panel] = P::zero == 0 ? weights : sub_short(weights, zero);
  });
  block.scales[r][Part][panel] = P::template scale<Part>(record, header);
}

/// Unpacks records of one panel from `at` on, which is at a header where the format has them. Returns the end.
template <typename P>
const std::byte* unpack(const std::byte* at, int records, BlockOf<P>& block, int panel) {
  static_assert(P::records_per_header == 1 || P::records_per_header == block_records);
  const typename P::Header header = P::load_header(at);
  at += P::header_bytes;
  for (int r = 0; r < records; ++r) {
    for (int offset = 0; offset < P::record_bytes; offset += 64) {
      prefetch(at + block_records * P::record_bytes + offset);
    }
    unpack_part<P, 0>(at, header, block, r, panel);
    if constexpr (P::parts == 2) unpack_part<P, 1>(at, header, block, r, panel);
    if constexpr (P::has_minimum) block.minima[r][panel] = P::minimum(at, header);
    at += P::record_bytes;
  }
  return at;
}

/// Adds the block's columns to the sums [token][panel][lanes]; the same operations in the same order as `few`.
template <int Parts, bool HasMinimum, int Tokens>
void add_tile(const IntegerBlock<Parts, HasMinimum>& block, int records, const int16_t* values,
              const ActivationGroup* groups, int64_t tokens, float* sums) {
  for (int r = 0; r < records; ++r) {
    for (int part = 0; part < Parts; ++part) {
      Ints dots[2][Tokens];
      for (int t = 0; t < Tokens; ++t) dots[0][t] = dots[1][t] = broadcast_int(0);
      constexpr int pairs = 16 / Parts;
      const Ints(*weights)[2] = block.pairs[r] + part * pairs;
      const int16_t* activations = values + part * pairs * 2;
#pragma clang loop unroll_count(2)
      for (int j = 0; j < pairs; ++j) {
        for (int t = 0; t < Tokens; ++t) {
          const Ints pair = broadcast_int(pair_at(activations + t * record_columns + 2 * j));
          dots[0][t] = dot(dots[0][t], weights[j][0], pair);
          dots[1][t] = dot(dots[1][t], weights[j][1], pair);
        }
      }
      for (int t = 0; t < Tokens; ++t) {
        const Floats scale = broadcast(groups[t].scale);
        for (int p = 0; p < 2; ++p) {
          float* sum = sums + (t * 2 + p) * lanes;
          Floats value = fma(block.scales[r][part][p], mul(to_floats(dots[p][t]), scale), load_floats(sum));
          if constexpr (HasMinimum) {
            if (part == Parts - 1) value = fma(block.minima[r][p], broadcast(groups[t].sum), value);
          }
          store_floats(sum, value);
        }
      }
    }
    values += tokens * record_columns;
    groups += tokens;
  }
}

template <int Tokens>
void add_tile(const FloatBlock& block, int records, const float* values, int64_t tokens, float* sums) {
  Floats tile[2][Tokens];
  for (int t = 0; t < Tokens; ++t) {
    for (int p = 0; p < 2; ++p) tile[p][t] = load_floats(sums + (t * 2 + p) * lanes);
  }
  for (int r = 0; r < records; ++r) {
#pragma clang loop unroll_count(2)
    for (int k = 0; k < record_columns; ++k) {
      for (int t = 0; t < Tokens; ++t) {
        const Floats value = broadcast(values[t * record_columns + k]);
        for (int p = 0; p < 2; ++p) tile[p][t] = fma(block.columns[r][k][p], value, tile[p][t]);
      }
    }
    values += tokens * record_columns;
  }
  for (int t = 0; t < Tokens; ++t) {
    for (int p = 0; p < 2; ++p) store_floats(sums + (t * 2 + p) * lanes, tile[p][t]);
  }
}

template <int Count, typename Use>
QUERN_INLINE void with_tile_size(int tokens, Use&& use) {
  if constexpr (Count > 0) {
    if (tokens == Count) return use(std::integral_constant<int, Count>{});
    with_tile_size<Count - 1>(tokens, use);
  }
}

/// Calls use(first token, integral_constant tokens) for tiles of about equal size.
template <typename Use>
QUERN_INLINE void for_each_tile(int tokens, Use&& use) {
  const int tiles = (tokens + tile_tokens - 1) / tile_tokens;
  int first = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    const int end = (tile + 1) * tokens / tiles;
    with_tile_size<tile_tokens>(end - first, [&](auto size) { use(first, size); });
    first = end;
  }
}

/// Adds a block to the sums of all tokens; `first` is its first record.
template <int Parts, bool HasMinimum>
void add_block(const IntegerBlock<Parts, HasMinimum>& block, int first, int records, const Activations& x,
               float* sums) {
  for_each_tile(x.tokens, [&]<int Tokens>(int token, std::integral_constant<int, Tokens>) {
    const int64_t index = int64_t{first} * x.tokens + token;
    add_tile<Parts, HasMinimum, Tokens>(block, records, x.values + index * record_columns, x.groups + index, x.tokens,
                                        sums + int64_t{token} * 2 * lanes);
  });
}

inline void add_block(const FloatBlock& block, int first, int records, const Activations& x, float* sums) {
  for_each_tile(x.tokens, [&]<int Tokens>(int token, std::integral_constant<int, Tokens>) {
    const int64_t index = int64_t{first} * x.tokens + token;
    add_tile<Tokens>(block, records, x.floats + index * record_columns, x.tokens, sums + int64_t{token} * 2 * lanes);
  });
}

/// All tokens times two panels; sums: [tokens][2][lanes].
template <typename P>
  requires P::integers
void many(const std::byte* const (&panel)[2], const Activations& x, float* sums) {
  const std::byte* at[2] = {panel[0], panel[1]};
  BlockOf<P> block;
  for (int first = 0; first < x.records; first += block_records) {
    const int records = x.records - first < block_records ? x.records - first : block_records;
    for (int p = 0; p < 2; ++p) at[p] = unpack<P>(at[p], records, block, p);
    add_block(block, first, records, x, sums);
  }
}

template <typename P>
  requires(!P::integers)
void many(const std::byte* const (&panel)[2], const Activations& x, float* sums) {
  FloatBlock block;
  for (int first = 0; first < x.records; first += block_records) {
    const int records = x.records - first < block_records ? x.records - first : block_records;
    for (int p = 0; p < 2; ++p) {
      const std::byte* at = panel[p] + int64_t{first} * P::record_bytes;
      for (int r = 0; r < records; ++r, at += P::record_bytes) {
        for (int k = 0; k < record_columns; ++k) block.columns[r][k][p] = P::column(at, k);
      }
    }
    add_block(block, first, records, x, sums);
  }
}

}  // namespace quern::QUERN_ISA::panels
