// The product for many tokens: a block of a panel's columns is unpacked once and used for all tokens.
#pragma once

#include "backend/cpu/linear_codes.h"
#include "backend/cpu/linear_multiply.h"
#include "backend/cpu/linear_tiles.h"

namespace quern::QUERN_ISA::panels {

inline constexpr int block_records = 8;  // records unpacked at a time: they stay in the first-level cache

/// Unpacked columns of a panel of an integer format; the last index is the half.
template <int Parts, bool HasMinimum>
struct IntegerBlock {
  Ints pairs[block_records][16][2];
  Floats scales[block_records][Parts][2];
  Floats minima[HasMinimum ? block_records : 1][Parts][2];
};
template <typename P>
using BlockOf = IntegerBlock<P::parts, P::has_minimum>;

struct FloatBlock {
  Floats columns[block_records][record_columns][2];
};

template <typename P, int Part>
QUERN_INLINE void unpack_part(const std::byte* record, const typename P::Header& header, BlockOf<P>& block, int r,
                              int half) {
  const Ints zero = broadcast_short(P::zero);
  P::template pairs<Part>(record, [&]<int J>(Pair<J>, Ints weights) __attribute__((always_inline)) {
    block.pairs[r][J][half] = P::zero == 0 ? weights : sub_short(weights, zero);
  });
  block.scales[r][Part][half] = P::template scale<Part>(record, header);
  if constexpr (P::has_minimum) block.minima[r][Part][half] = P::template minimum<Part>(record, header);
}

/// Unpacks records from `at` on, which is at a header where the format has them. Returns the end. Asks for the next
/// block, which memory brings while this one is computed.
template <typename P>
const std::byte* unpack(const std::byte* at, int records, BlockOf<P>& block) {
  static_assert(P::records_per_header == 1 || P::records_per_header == block_records);
  const typename P::Header headers[2] = {P::load_header(at), P::load_header(at + P::header_bytes)};
  at += 2 * P::header_bytes;
  for (int r = 0; r < records; ++r) {
    for (int offset = 0; offset < 2 * P::record_bytes; offset += 64) {
      prefetch(at + block_records * 2 * P::record_bytes + offset);
    }
    for (int half = 0; half < 2; ++half) {
      unpack_part<P, 0>(at, headers[half], block, r, half);
      if constexpr (P::parts == 2) unpack_part<P, 1>(at, headers[half], block, r, half);
      at += P::record_bytes;
    }
  }
  return at;
}

/// What the group's sum gives with the minima of a record's part; p is the half of the rows.
template <int Parts, bool HasMinimum>
[[gnu::always_inline]] inline void add_minimum(Floats& value, const IntegerBlock<Parts, HasMinimum>& block, int r,
                                               int part, int p, const ActivationGroup& group) {
  if constexpr (HasMinimum) value = fma(block.minima[r][part][p], broadcast(part_sum<Parts>(group, part)), value);
}

/// Adds the block's columns to the sums [token][half][lanes]; the same operations in the same order as
/// linear_product.h.
template <int Parts, bool HasMinimum, int Tokens>
void add_tile(const IntegerBlock<Parts, HasMinimum>& block, int records, const int16_t* values,
              const ActivationGroup* groups, float* sums) {
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
          Floats value = load_floats(sum);
          add_minimum(value, block, r, part, p, groups[t]);
          store(sum, fma(block.scales[r][part][p], to_floats(dots[p][t]) * scale, value));
        }
      }
    }
    values += Tokens * record_columns;
    groups += Tokens;
  }
}

template <int Tokens>
void add_tile(const FloatBlock& block, int records, const float* values, float* sums) {
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
    values += Tokens * record_columns;
  }
  for (int t = 0; t < Tokens; ++t) {
    for (int p = 0; p < 2; ++p) store(sums + (t * 2 + p) * lanes, tile[p][t]);
  }
}

/// Adds a block to the sums of all tokens; `first` is its first record.
template <int Parts, bool HasMinimum>
void add_block(const IntegerBlock<Parts, HasMinimum>& block, int first, int records, const Activations& x,
               float* sums) {
  for_each_tile<few_tile>(x.tokens, [&]<int Tokens>(int token, std::integral_constant<int, Tokens>) {
    const int64_t index = group_index(x, token, Tokens, first);
    add_tile<Parts, HasMinimum, Tokens>(block, records, x.values + index * record_columns, x.groups + index,
                                        sums + int64_t{token} * panel_height);
  });
}

inline void add_block(const FloatBlock& block, int first, int records, const Activations& x, float* sums) {
  for_each_tile<many_tile>(x.tokens, [&]<int Tokens>(int token, std::integral_constant<int, Tokens>) {
    const int64_t index = group_index(x, token, Tokens, first);
    add_tile<Tokens>(block, records, x.floats + index * record_columns, sums + int64_t{token} * panel_height);
  });
}

/// All tokens times a panel; sums: [tokens][panel_height].
template <typename P>
  requires P::integers
void many(const std::byte* panel, const Activations& x, float* sums) {
  BlockOf<P> block;
  for (int first = 0; first < x.records; first += block_records) {
    const int records = x.records - first < block_records ? x.records - first : block_records;
    panel = unpack<P>(panel, records, block);
    add_block(block, first, records, x, sums);
  }
}

template <typename P>
  requires(!P::integers)
void many(const std::byte* panel, const Activations& x, float* sums) {
  FloatBlock block;
  for (int first = 0; first < x.records; first += block_records) {
    const int records = x.records - first < block_records ? x.records - first : block_records;
    typename P::Header headers[2];
    for (int i = 0; i < 2 * records; ++i, panel += P::record_bytes) {
      if (i % (2 * P::records_per_header) == 0) {
        for (int half = 0; half < 2; ++half) headers[half] = P::load_header(panel + half * P::header_bytes);
        panel += 2 * P::header_bytes;
      }
      for (int k = 0; k < record_columns; ++k) block.columns[i / 2][k][i % 2] = P::column(panel, headers[i % 2], k);
    }
    add_block(block, first, records, x, sums);
  }
}

}  // namespace quern::QUERN_ISA::panels
