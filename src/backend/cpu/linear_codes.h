// Panels of formats of codes (formats/codes.h). A half of a record has the planes of a row's codes as words, first 4 or
// 2 bits a value, then the last bit; then the scales. Codes of levels are stored so that 0 stands for the least level:
// kernels look up how far a level is above that one, which fits a byte.
#pragma once

#include "backend/cpu/linear_panels.h"

namespace quern::QUERN_ISA::panels {

template <typename Format>
concept OfCodes = requires { Format::code_bits; };
template <typename Format>
concept OfLevels = OfCodes<Format> && requires { Format::levels(); };

/// What is added to the codes of a format, bit by bit, to store them.
template <typename Format>
constexpr uint32_t stored_flip() {
  if constexpr (OfLevels<Format>) return Format::levels().least();
  return 0;
}

/// Of stored codes, above the least level.
template <typename Format>
struct StoredLevels {
  uint8_t above[16] = {};

  constexpr StoredLevels() {
    constexpr Levels levels = Format::levels();
    for (uint32_t code = 0; code < 16; ++code) {
      above[code] = static_cast<uint8_t>(levels[code ^ stored_flip<Format>()] - levels[stored_flip<Format>()]);
    }
  }
};

template <typename Format>
constexpr int stored_zero() {
  if constexpr (OfLevels<Format>)
    return -Format::levels()[stored_flip<Format>()];
  else
    return Format::zero;
}

/// `Parts`: scales per record.
template <typename Format, int Parts = 1>
struct CodesPanel : IntegerPanel {
  static constexpr int parts = Parts;
  static constexpr int zero = stored_zero<Format>();
  static constexpr int most_direct_tokens = 1;  // kernels for all tiles of so many formats are not worth their size
  static constexpr int planes_bytes = Format::code_bits * lanes_bytes;

  template <int Part, typename Use>
  QUERN_INLINE static void pairs(const std::byte* record, Use&& use) {
    pairs_from<16 / Parts * Part, 16 / Parts*(Part + 1)>(record, use);
  }

 private:
  template <int First, int Last, typename Use>
  QUERN_INLINE static void pairs_from(const std::byte* record, Use&& use) {
    if constexpr (First < Last) {
      constexpr int bits = Format::low_bits;
      constexpr int in_word = 16 / bits;  // pairs above each other
      const Ints low = load_ints(record + First / in_word * lanes_bytes);
      Ints codes = right_short<bits*(First % in_word)>(low) & broadcast_short((1 << bits) - 1);
      if constexpr (Format::has_last_bit) {
        codes |= move_bits<bits, First>(load_ints(record + bits * lanes_bytes), broadcast_short(1 << bits));
      }
      if constexpr (OfLevels<Format>) {
        static constexpr StoredLevels<Format> levels;
        codes = look_up(levels.above, codes);
      }
      use(Pair<First>{}, codes);
      pairs_from<First + 1, Last>(record, use);
    }
  }
};

/// One scale per record, behind the planes: `Load` reads its `Bytes`.
template <typename Format, int Bytes, Floats (*Load)(const void*)>
struct PlainCodesPanel : CodesPanel<Format> {
  using Codes = CodesPanel<Format>;
  static constexpr int record_bytes = Codes::planes_bytes + lanes * Bytes;

  template <int Part>
  QUERN_INLINE static Floats scale(const std::byte* record, Nothing /*header*/) {
    return Load(record + Codes::planes_bytes);
  }
};

template <>
struct Panel<Q2_0> : PlainCodesPanel<Q2_0, 2, load_f16> {};
template <>
struct Panel<IQ4_NL> : PlainCodesPanel<IQ4_NL, 2, load_f16> {};
template <>
struct Panel<MXFP4> : PlainCodesPanel<MXFP4, 1, load_half_of_e8m0> {};

template <>
struct Panel<Q5_1> : PlainCodesPanel<Q5_1, 2, load_f16> {
  static constexpr int record_bytes = planes_bytes + lanes * 4;
  static constexpr bool has_minimum = true;

  template <int Part>
  QUERN_INLINE static Floats minimum(const std::byte* record, Nothing /*header*/) {
    return load_f16(record + planes_bytes + 2 * lanes);
  }
};

template <>
struct Panel<NVFP4> : CodesPanel<NVFP4, 2> {
  static constexpr int record_bytes = planes_bytes + lanes * 2;

  template <int Part>
  QUERN_INLINE static Floats scale(const std::byte* record, Nothing /*header*/) {
    return load_half_of_ue4m3(record + planes_bytes + Part * lanes);
  }
};

/// Scales of 8 bits; the header holds their unit.
template <typename Format>
struct ScaledCodesPanel : CodesPanel<Format, record_columns / Format::block> {
  using Codes = CodesPanel<Format, record_columns / Format::block>;
  static constexpr int header_bytes = 2 * lanes;
  static constexpr int records_per_header = 8;
  static constexpr int record_bytes = Codes::planes_bytes + lanes * Codes::parts;
  using Header = Floats;

  QUERN_INLINE static Header load_header(const std::byte* header) { return load_f16(header) * Format::unit; }
  template <int Part>
  QUERN_INLINE static Floats scale(const std::byte* record, Header unit) {
    return unit * load_i8(record + Codes::planes_bytes + Part * lanes);
  }
};

template <>
struct Panel<Q3_K> : ScaledCodesPanel<Q3_K> {};
template <>
struct Panel<IQ4_XS> : ScaledCodesPanel<IQ4_XS> {};
template <>
struct Panel<IQ3_XXS> : ScaledCodesPanel<IQ3_XXS> {};
template <>
struct Panel<IQ3_S> : ScaledCodesPanel<IQ3_S> {};
template <>
struct Panel<IQ2> : ScaledCodesPanel<IQ2> {};
template <>
struct Panel<IQ1> : ScaledCodesPanel<IQ1> {};

/// The header holds the units of scales and of minima.
template <typename Format, int Parts>
struct MinimaCodesPanel : CodesPanel<Format, Parts> {
  static constexpr int header_bytes = 4 * lanes;
  static constexpr int records_per_header = 8;
  static constexpr bool has_minimum = true;
  struct Header {
    Floats scale_unit, minimum_unit;
  };

  QUERN_INLINE static Header load_header(const std::byte* header) {
    return {load_f16(header), load_f16(header + 2 * lanes)};
  }
};

template <>
struct Panel<Q5_K> : MinimaCodesPanel<Q5_K, 1> {
  static constexpr int record_bytes = planes_bytes + lanes * 2;

  template <int Part>
  QUERN_INLINE static Floats scale(const std::byte* record, const Header& header) {
    return header.scale_unit * load_u8(record + planes_bytes);
  }
  template <int Part>
  QUERN_INLINE static Floats minimum(const std::byte* record, const Header& header) {
    return -header.minimum_unit * load_u8(record + planes_bytes + lanes);
  }
};

/// A byte holds a scale in its low four bits and a minimum in the others.
template <>
struct Panel<Q2_K> : MinimaCodesPanel<Q2_K, 2> {
  static constexpr int record_bytes = planes_bytes + lanes * 2;

  template <int Part>
  QUERN_INLINE static Floats scale(const std::byte* record, const Header& header) {
    return header.scale_unit * to_floats(widen<uint8_t>(record + planes_bytes + Part * lanes) & 15);
  }
  template <int Part>
  QUERN_INLINE static Floats minimum(const std::byte* record, const Header& header) {
    return -header.minimum_unit * to_floats(widen<uint8_t>(record + planes_bytes + Part * lanes) >> 4);
  }
};

}  // namespace quern::QUERN_ISA::panels
