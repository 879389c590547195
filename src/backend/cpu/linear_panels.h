// Panels: how the matrix kernels keep weights. A panel is two vectors of output rows; along the columns it is a chain
// of records of 32 columns, so that a product reads memory straight on. A record has two halves, one for each vector of
// rows. A half holds words of 32 bits per row: the 16-bit half h of a row's word is column 2j + h of pair j, several
// pairs above each other, ascending from the low bits; then the scales of the rows. K-quants and formats like them have
// a header, in two halves too, before every eighth record, with the units of the scales; f8_block before every fourth.
// Formats of codes (formats/codes.h): linear_codes.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backend/cpu/linear_lanes.h"
#include "backend/cpu/linear_tiles.h"
#include "formats/list.h"

namespace quern::QUERN_ISA::panels {

inline constexpr int record_columns = 32;
inline constexpr int panel_height = 2 * lanes;  // rows

/// What a format without a header or without minima has in their place.
struct Nothing {};

template <int J>
using Pair = std::integral_constant<int, J>;

/// Calls use(Pair<j>, 16-bit values without zero-point) for the 16 pairs of the 4-bit planes at `p`.
/// `high(Pair<j>, low)` may add bits above the four.
template <int First, int Last, typename High, typename Use>
QUERN_INLINE void four_bit_pairs(const std::byte* p, High&& high, Use&& use) {
  if constexpr (First < Last) {
    const Ints mask = broadcast_short(15);
    const Ints raw = load_ints(p + First / 4 * lanes_bytes);
    use(Pair<First>{}, high(Pair<First>{}, raw & mask));
    use(Pair<First + 1>{}, high(Pair<First + 1>{}, right_short<4>(raw) & mask));
    use(Pair<First + 2>{}, high(Pair<First + 2>{}, right_short<8>(raw) & mask));
    use(Pair<First + 3>{}, high(Pair<First + 3>{}, right_short<12>(raw)));
    four_bit_pairs<First + 4, Last>(p, high, use);
  }
}

struct NoHighBits {
  template <int J>
  QUERN_INLINE Ints operator()(Pair<J>, Ints low) const {
    return low;
  }
};

/// Bits [From, From + count) of every 16-bit value, moved to bit To; `mask` says how many.
template <int To, int From>
QUERN_INLINE Ints move_bits(Ints a, Ints mask) {
  if constexpr (From > To)
    return right_short<From - To>(a) & mask;
  else
    return left_short<To - From>(a) & mask;
}

/// What is common to formats of integers. Sizes are those of a half. `zero`: the stored value that means 0. `parts`:
/// scales, and minima where there are any, per record and row.
struct IntegerPanel {
  static constexpr bool integers = true;
  static constexpr int header_bytes = 0;
  static constexpr int records_per_header = 1;
  static constexpr int parts = 1;
  static constexpr bool has_minimum = false;
  static constexpr int most_direct_tokens = most_few_tokens;  // for which weights are unpacked in registers
  using Header = Nothing;
  QUERN_INLINE static Header load_header(const std::byte* /*header*/) { return {}; }
};

/// Four bits per value and, unless a format says otherwise, a scale behind them.
struct FourBitPanel : IntegerPanel {
  template <int Part, typename Use>
  QUERN_INLINE static void pairs(const std::byte* record, Use&& use) {
    four_bit_pairs<0, 16>(record, NoHighBits{}, use);
  }
  template <int Part>
  QUERN_INLINE static Floats scale(const std::byte* record, Header /*header*/) {
    return load_f16(record + 4 * lanes_bytes);
  }
};

template <typename Format>
struct Panel;

template <>
struct Panel<Q4_0> : FourBitPanel {
  static constexpr int zero = 8;
  static constexpr int record_bytes = lanes * 18;
};

template <>
struct Panel<Q4_1> : FourBitPanel {
  static constexpr int zero = 0;
  static constexpr int record_bytes = lanes * 20;
  static constexpr bool has_minimum = true;

  template <int Part>
  QUERN_INLINE static Floats minimum(const std::byte* record, Header /*header*/) {
    return load_f16(record + 4 * lanes_bytes + 2 * lanes);
  }
};

template <>
struct Panel<Q5_0> : IntegerPanel {
  static constexpr int zero = 16;
  static constexpr int record_bytes = lanes * 22;

  template <int Part, typename Use>
  QUERN_INLINE static void pairs(const std::byte* record, Use&& use) {
    const Ints fifth = load_ints(record + 4 * lanes_bytes);
    const auto high = [&]<int J>(Pair<J>, Ints low)
                          __attribute__((always_inline)) { return low | move_bits<4, J>(fifth, broadcast_short(16)); };
    four_bit_pairs<0, 16>(record, high, use);
  }
  template <int Part>
  QUERN_INLINE static Floats scale(const std::byte* record, Header /*header*/) {
    return load_f16(record + 5 * lanes_bytes);
  }
};

template <>
struct Panel<Q8_0> : IntegerPanel {
  static constexpr int zero = 128;
  static constexpr int record_bytes = lanes * 34;

  template <int Part, typename Use>
  QUERN_INLINE static void pairs(const std::byte* record, Use&& use) {
    two_pairs<0>(record, use);
  }
  template <int Part>
  QUERN_INLINE static Floats scale(const std::byte* record, Header /*header*/) {
    return load_f16(record + 8 * lanes_bytes);
  }

 private:
  template <int First, typename Use>
  QUERN_INLINE static void two_pairs(const std::byte* record, Use&& use) {
    if constexpr (First < 16) {
      const Ints raw = load_ints(record + First / 2 * lanes_bytes);
      use(Pair<First>{}, raw & broadcast_short(255));
      use(Pair<First + 1>{}, right_short<8>(raw));
      two_pairs<First + 2>(record, use);
    }
  }
};

template <>
struct Panel<Q4_K> : FourBitPanel {
  static constexpr int zero = 0;
  static constexpr int header_bytes = 4 * lanes;
  static constexpr int records_per_header = 8;
  static constexpr int record_bytes = lanes * 18;
  static constexpr bool has_minimum = true;
  struct Header {
    Floats scale_unit, minimum_unit;
  };

  QUERN_INLINE static Header load_header(const std::byte* header) {
    return {load_f16(header), load_f16(header + 2 * lanes)};
  }
  template <int Part>
  QUERN_INLINE static Floats scale(const std::byte* record, const Header& header) {
    return header.scale_unit * load_u8(record + 4 * lanes_bytes);
  }
  template <int Part>
  QUERN_INLINE static Floats minimum(const std::byte* record, const Header& header) {
    return -header.minimum_unit * load_u8(record + 4 * lanes_bytes + lanes);
  }
};

template <>
struct Panel<Q6_K> : IntegerPanel {
  static constexpr int zero = 32;
  static constexpr int header_bytes = 2 * lanes;
  static constexpr int records_per_header = 8;
  static constexpr int record_bytes = lanes * 26;
  static constexpr int parts = 2;
  struct Header {
    Floats scale_unit;
  };

  QUERN_INLINE static Header load_header(const std::byte* header) { return {load_f16(header)}; }
  template <int Part, typename Use>
  QUERN_INLINE static void pairs(const std::byte* record, Use&& use) {
    const Ints top = load_ints(record + (4 + Part) * lanes_bytes);
    const auto high = [&]<int J>(Pair<J>, Ints low) __attribute__((always_inline)) {
      return low | move_bits<4, J % 8 * 2>(top, broadcast_short(48));
    };
    four_bit_pairs<8 * Part, 8 * Part + 8>(record, high, use);
  }
  template <int Part>
  QUERN_INLINE static Floats scale(const std::byte* record, const Header& header) {
    return header.scale_unit * load_i8(record + 6 * lanes_bytes + Part * lanes);
  }
};

/// Floats: a record is [32 columns][lanes]. Columns beyond the matrix are 0.
template <int Bytes>
struct FloatPanel {
  static constexpr bool integers = false;
  static constexpr int header_bytes = 0;
  static constexpr int records_per_header = 1;
  static constexpr int most_direct_tokens = most_few_tokens;
  static constexpr int record_bytes = record_columns * lanes * Bytes;
  using Header = Nothing;
  QUERN_INLINE static Header load_header(const std::byte* /*header*/) { return {}; }
};

template <>
struct Panel<F32> : FloatPanel<4> {
  QUERN_INLINE static Floats column(const std::byte* record, Header /*header*/, int k) {
    return load_floats(record + k * 4 * lanes);
  }
};
template <>
struct Panel<F16> : FloatPanel<2> {
  QUERN_INLINE static Floats column(const std::byte* record, Header /*header*/, int k) {
    return load_f16(record + k * 2 * lanes);
  }
};
template <>
struct Panel<BF16> : FloatPanel<2> {
  QUERN_INLINE static Floats column(const std::byte* record, Header /*header*/, int k) {
    return load_bf16(record + k * 2 * lanes);
  }
};
template <>
struct Panel<F8> : FloatPanel<1> {
  QUERN_INLINE static Floats column(const std::byte* record, Header /*header*/, int k) {
    return load_e4m3(record + k * lanes);
  }
};
/// The header holds the scales of four records.
template <>
struct Panel<F8_Block> : FloatPanel<1> {
  static constexpr int header_bytes = 4 * lanes;
  static constexpr int records_per_header = 4;
  using Header = Floats;
  QUERN_INLINE static Header load_header(const std::byte* header) { return load_floats(header); }
  QUERN_INLINE static Floats column(const std::byte* record, Header scale, int k) {
    return load_e4m3(record + k * lanes) * scale;
  }
};

constexpr int records_of(int32_t cols) { return (cols + record_columns - 1) / record_columns; }

template <typename P>
constexpr int64_t panel_bytes_of(int32_t cols) {
  const int64_t records = records_of(cols);
  return 2 *
         (records * P::record_bytes + (records + P::records_per_header - 1) / P::records_per_header * P::header_bytes);
}

}  // namespace quern::QUERN_ISA::panels
