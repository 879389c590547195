// The product for few tokens: weights are unpacked in registers on their way from memory.
#pragma once

#include "backend/cpu/linear_multiply.h"
#include "backend/cpu/linear_panels.h"

namespace quern::QUERN_ISA::panels {

inline constexpr int max_few_tokens = 4;
inline constexpr int prefetch_bytes = 1536;  // how far ahead of use weights are asked for

/// Sums of a tile: two panels times some tokens.
template <int Tokens>
struct Sums {
  Floats of[2][Tokens];
};

template <typename P>
QUERN_INLINE void prefetch_record(const std::byte* record) {
  for (int offset = 0; offset < P::record_bytes; offset += 64) prefetch(record + prefetch_bytes + offset);
}

/// Adds one part (all or half of the columns) of a record.
template <typename P, int Part, int Tokens>
QUERN_INLINE void add_part(const std::byte* const (&records)[2], const typename P::Header (&headers)[2],
                           const int16_t* values, const ActivationGroup* groups, Sums<Tokens>& sums) {
  Ints dots[2][Tokens];
  for (int t = 0; t < Tokens; ++t) {
    const int32_t sum = P::parts == 2 ? groups[t].half_sums[Part] : groups[t].half_sums[0] + groups[t].half_sums[1];
    for (int p = 0; p < 2; ++p) dots[p][t] = broadcast_int(-P::zero * sum);
  }
  for (int p = 0; p < 2; ++p) {
    P::template pairs<Part>(records[p], [&]<int J>(Pair<J>, Ints weights) __attribute__((always_inline)) {
      for (int t = 0; t < Tokens; ++t) {
        dots[p][t] = dot(dots[p][t], weights, broadcast_int(pair_at(values + t * record_columns + 2 * J)));
      }
    });
  }
  for (int p = 0; p < 2; ++p) {
    const Floats scale = P::template scale<Part>(records[p], headers[p]);
    for (int t = 0; t < Tokens; ++t) {
      const Floats product = mul(to_floats(dots[p][t]), broadcast(groups[t].scale));
      sums.of[p][t] = fma(scale, product, sums.of[p][t]);
    }
  }
}

template <typename P, int Tokens>
QUERN_INLINE void add_record(const std::byte* const (&records)[2], const typename P::Header (&headers)[2],
                             const int16_t* values, const ActivationGroup* groups, Sums<Tokens>& sums) {
  add_part<P, 0>(records, headers, values, groups, sums);
  if constexpr (P::parts == 2) add_part<P, 1>(records, headers, values, groups, sums);
  if constexpr (P::has_minimum) {
    for (int p = 0; p < 2; ++p) {
      const Floats minimum = P::minimum(records[p], headers[p]);
      for (int t = 0; t < Tokens; ++t) sums.of[p][t] = fma(minimum, broadcast(groups[t].sum), sums.of[p][t]);
    }
  }
}

/// All tokens times the panels that begin at `at`; integer formats.
template <typename P, int Tokens>
  requires P::integers
QUERN_INLINE void few(const std::byte* const (&panel)[2], const Activations& x, Sums<Tokens>& sums) {
  const std::byte* at[2] = {panel[0], panel[1]};
  const int16_t* values = x.values;
  const ActivationGroup* groups = x.groups;
  for (int record = 0; record < x.records; record += P::records_per_header) {
    typename P::Header headers[2];
    for (int p = 0; p < 2; ++p) {
      headers[p] = P::load_header(at[p]);
      at[p] += P::header_bytes;
    }
    for (int r = 0; r < P::records_per_header; ++r) {
      for (int p = 0; p < 2; ++p) prefetch_record<P>(at[p]);
      add_record<P, Tokens>(at, headers, values, groups, sums);
      for (int p = 0; p < 2; ++p) at[p] += P::record_bytes;
      values += Tokens * record_columns;
      groups += Tokens;
    }
  }
}

/// The same for float formats: one chain of multiply-adds per output, columns ascending.
template <typename P, int Tokens>
  requires(!P::integers)
QUERN_INLINE void few(const std::byte* const (&panel)[2], const Activations& x, Sums<Tokens>& sums) {
  const std::byte* at[2] = {panel[0], panel[1]};
  const float* values = x.floats;
  for (int record = 0; record < x.records; ++record) {
    for (int p = 0; p < 2; ++p) prefetch_record<P>(at[p]);
#pragma clang loop unroll_count(4)
    for (int k = 0; k < record_columns; ++k) {
      for (int p = 0; p < 2; ++p) {
        const Floats weights = P::column(at[p], k);
        for (int t = 0; t < Tokens; ++t) {
          sums.of[p][t] = fma(weights, broadcast(values[t * record_columns + k]), sums.of[p][t]);
        }
      }
    }
    for (int p = 0; p < 2; ++p) at[p] += P::record_bytes;
    values += Tokens * record_columns;
  }
}

}  // namespace quern::QUERN_ISA::panels
