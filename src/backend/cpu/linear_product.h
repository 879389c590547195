// The product of a panel with a tile of tokens: weights are unpacked in registers on their way from memory.
#pragma once

#include "backend/cpu/linear_codes.h"
#include "backend/cpu/linear_multiply.h"
#include "backend/cpu/linear_tiles.h"

namespace quern::QUERN_ISA::panels {

inline constexpr int prefetch_bytes = 2048;  // how far ahead of use weights are asked for

/// Activations of one tile: [group of 32 columns][token][32].
struct Tile {
  const int16_t* values = nullptr;
  const ActivationGroup* groups = nullptr;
  const float* floats = nullptr;
  int32_t records = 0;
};

/// Sums of a tile: the two vectors of rows of a panel times its tokens.
template <int Tokens>
struct Sums {
  Floats of[2][Tokens];
};

template <typename P>
QUERN_INLINE void prefetch_record(const std::byte* record) {
  for (int offset = 0; offset < 2 * P::record_bytes; offset += 64) prefetch(record + prefetch_bytes + offset);
}

/// Adds one part (all or half of the columns) of half a record.
template <typename P, int Part, int Tokens>
QUERN_INLINE void add_part(const std::byte* record, const typename P::Header& header, const int16_t* values,
                           const ActivationGroup* groups, Floats (&sums)[Tokens]) {
  Ints dots[Tokens];
  for (int t = 0; t < Tokens; ++t) {
    const int32_t sum = P::parts == 2 ? groups[t].half_sums[Part] : groups[t].half_sums[0] + groups[t].half_sums[1];
    dots[t] = broadcast_int(-P::zero * sum);
  }
  Floats minimum{};
  if constexpr (P::has_minimum) minimum = P::template minimum<Part>(record, header);
  P::template pairs<Part>(record, [&]<int J>(Pair<J>, Ints weights) __attribute__((always_inline)) {
    // Between integer products there is room for the multiply-adds of minima: behind them they cost twice as much.
    constexpr int pairs_a_token = 16 / P::parts / few_tile;
    constexpr int token = J / pairs_a_token % few_tile;
    if constexpr (P::has_minimum && J % pairs_a_token == 0 && token < Tokens) {
      sums[token] = fma(minimum, broadcast(part_sum<P::parts>(groups[token], Part)), sums[token]);
      if constexpr (Tokens > 2) asm volatile("" : "+m"(sums[token]));  // keeps it here
    }
    for (int t = 0; t < Tokens; ++t) {
      dots[t] = dot(dots[t], weights, broadcast_int(pair_at(values + t * record_columns + 2 * J)));
      in_order(dots[t]);
    }
  });
  const Floats scale = P::template scale<Part>(record, header);
  for (int t = 0; t < Tokens; ++t) {
    sums[t] = fma(scale, to_floats(dots[t]) * broadcast(groups[t].scale), sums[t]);
  }
}

template <typename P, int Tokens>
QUERN_INLINE void add_half_record(const std::byte* record, const typename P::Header& header, const int16_t* values,
                                  const ActivationGroup* groups, Floats (&sums)[Tokens]) {
  // Hides that both halves read the same activations: broadcasting them again is free, keeping them all in registers
  // is not possible.
  asm volatile("" : "+r"(values));
  add_part<P, 0>(record, header, values, groups, sums);
  if constexpr (P::parts == 2) add_part<P, 1>(record, header, values, groups, sums);
}

/// Integer formats.
template <typename P, int Tokens>
  requires P::integers
QUERN_INLINE void add_product(const std::byte* panel, Tile x, Sums<Tokens>& sums) {
  for (int record = 0; record < x.records; record += P::records_per_header) {
    typename P::Header headers[2];
    for (int half = 0; half < 2; ++half) headers[half] = P::load_header(panel + half * P::header_bytes);
    panel += 2 * P::header_bytes;
    for (int r = 0; r < P::records_per_header; ++r) {
      prefetch_record<P>(panel);
#pragma clang loop unroll_count(Tokens > 2 ? 1 : 2)  // the sums of both halves would not fit the registers
      for (int half = 0; half < 2; ++half) {
        add_half_record<P, Tokens>(panel + half * P::record_bytes, headers[half], x.values, x.groups, sums.of[half]);
      }
      panel += 2 * P::record_bytes;
      x.values += Tokens * record_columns;
      x.groups += Tokens;
    }
  }
}

/// Half a record of a float format: one chain of multiply-adds per output, columns ascending.
template <typename P, int Tokens>
QUERN_INLINE void add_columns(const std::byte* record, typename P::Header header, const float* values,
                              Floats (&sums)[Tokens]) {
#pragma clang loop unroll_count(4)
  for (int k = 0; k < record_columns; ++k) {
    const Floats weights = P::column(record, header, k);
    for (int t = 0; t < Tokens; ++t) sums[t] = fma(weights, broadcast(values[t * record_columns + k]), sums[t]);
  }
}

/// Float formats.
template <typename P, int Tokens>
  requires(!P::integers)
QUERN_INLINE void add_product(const std::byte* panel, Tile x, Sums<Tokens>& sums) {
  for (int record = 0; record < x.records; record += P::records_per_header) {
    const typename P::Header headers[2] = {P::load_header(panel), P::load_header(panel + P::header_bytes)};
    panel += 2 * P::header_bytes;
    const int end = P::records_per_header < x.records - record ? P::records_per_header : x.records - record;
    for (int r = 0; r < end; ++r) {
      prefetch_record<P>(panel);
      add_columns<P, Tokens>(panel, headers[0], x.floats, sums.of[0]);
      add_columns<P, Tokens>(panel + P::record_bytes, headers[1], x.floats, sums.of[1]);
      panel += 2 * P::record_bytes;
      x.floats += Tokens * record_columns;
    }
  }
}

}  // namespace quern::QUERN_ISA::panels
