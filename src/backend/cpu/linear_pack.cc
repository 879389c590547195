// From rows of a format to panels (linear_panels.h).
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "backend/cpu/linear_codes.h"
#include "ops/linear.h"

namespace quern::QUERN_ISA {
namespace {

using panels::lanes_bytes;
using panels::Panel;
using panels::panel_bytes_of;
using panels::panel_height;
using panels::record_columns;
using panels::records_of;

using Words [[gnu::vector_size(lanes_bytes)]] = uint32_t;

/// Fields of `Width` bits of each word: those at even places to the low half, those at odd places to the high half.
template <int Width>
QUERN_INLINE Words split(Words words) {
  constexpr uint32_t masks[] = {0x55555555U, 0x33333333U, 0x0F0F0F0FU, 0x00FF00FFU, 0x0000FFFFU};
  Words halves[2] = {words, words >> Width};
  for (Words& half : halves) {
    int level = Width == 1 ? 0 : Width == 2 ? 1 : Width == 4 ? 2 : 3;
    half &= masks[level];
    for (int shift = Width; shift < 16; shift *= 2) half = (half | half >> shift) & masks[++level];
  }
  return halves[0] | halves[1] << 16;
}

/// Widths of the fields in the planes of a half record, and how many planes have each. A group of rows has all words
/// of the first width, record after record, then those of the rest.
struct Planes {
  int width;
  int count;
  int rest_width = 0;
  int rest_count = 0;
};
template <typename Format>
constexpr Planes planes = {Format::low_bits, Format::low_bits, 1, Format::has_last_bit ? 1 : 0};
template <>
constexpr Planes planes<Q4_0> = {4, 4};
template <>
constexpr Planes planes<Q4_1> = {4, 4};
template <>
constexpr Planes planes<Q4_K> = {4, 4};
template <>
constexpr Planes planes<Q5_0> = {4, 4, 1, 1};
template <>
constexpr Planes planes<Q6_K> = {4, 4, 2, 2};
template <>
constexpr Planes planes<Q8_0> = {8, 8};

/// What is added to the words of the planes, bit by bit.
template <typename Format>
constexpr uint32_t low_flip() {
  if constexpr (std::is_same_v<Format, Q8_0>) return 0x80808080U;
  constexpr int bits = planes<Format>.width;
  return (panels::stored_flip<Format>() & ((1U << bits) - 1)) * (bits == 4 ? 0x11111111U : 0x55555555U);
}
template <typename Format>
constexpr uint32_t last_flip() {
  return panels::stored_flip<Format>() >> planes<Format>.width != 0 ? 0xFFFFFFFFU : 0U;
}

/// A place in each of the rows of half a panel.
struct Rows {
  const std::byte* first;
  const int64_t* bytes_to;  // from the first to the row of every lane

  const std::byte* operator[](int lane) const { return first + bytes_to[lane]; }
  Rows operator+(int64_t bytes) const { return {first + bytes, bytes_to}; }
};

/// Of every four words of `a` and `b` those with these numbers; b's are 4 to 7.
template <int... Numbers>
QUERN_INLINE Words pick(Words a, Words b) {
  return [&]<int... Word>(std::integer_sequence<int, Word...>) __attribute__((always_inline)) {
    constexpr int numbers[] = {Numbers...};
    return __builtin_shufflevector(a, b,
                                   (Word / 4 * 4 + numbers[Word % 4] % 4 + (numbers[Word % 4] < 4 ? 0 : lanes))...);
  }(std::make_integer_sequence<int, lanes>());
}

/// Calls use(i, word i of every row) for `Count` words.
template <int Count, typename Use>
QUERN_INLINE void each_word(Rows rows, Use&& use) {
  int i = 0;
  for (; i + 4 <= Count; i += 4) {
    Words mixed[4];  // rows r, 4 + r, ..., four words of each
    for (int lane = 0; lane < lanes; ++lane) {
      std::memcpy(reinterpret_cast<std::byte*>(&mixed[lane % 4]) + lane / 4 * 16, rows[lane] + 4 * i, 16);
    }
    const Words low[2] = {pick<0, 4, 1, 5>(mixed[0], mixed[1]), pick<0, 4, 1, 5>(mixed[2], mixed[3])};
    const Words high[2] = {pick<2, 6, 3, 7>(mixed[0], mixed[1]), pick<2, 6, 3, 7>(mixed[2], mixed[3])};
    use(i, pick<0, 1, 4, 5>(low[0], low[1]));
    use(i + 1, pick<2, 3, 6, 7>(low[0], low[1]));
    use(i + 2, pick<0, 1, 4, 5>(high[0], high[1]));
    use(i + 3, pick<2, 3, 6, 7>(high[0], high[1]));
  }
  for (; i < Count; ++i) {
    Words words;
    for (int lane = 0; lane < lanes; ++lane) words[lane] = load_u32(rows[lane] + 4 * i);
    use(i, words);
  }
}

void store(std::byte* to, Words words) { std::memcpy(to, &words, sizeof words); }

using Halves [[gnu::vector_size(2 * lanes)]] = uint16_t;
using Bytes [[gnu::vector_size(lanes)]] = uint8_t;

/// Part `i` of each word, as wide as the elements of `Narrow`.
template <typename Narrow>
QUERN_INLINE void store_part(std::byte* to, Words words, int i) {
  constexpr int bits = 8 * sizeof(Narrow) / lanes;
  const Narrow narrow = __builtin_convertvector(words >> (bits * i), Narrow);
  std::memcpy(to, &narrow, sizeof narrow);
}

/// Records of the same half follow each other at this distance.
template <typename Format>
constexpr int record_step = 2 * Panel<Format>::record_bytes;

template <typename Format>
constexpr int group_records = Format::group / record_columns;

/// `Count` planes of every record of a group, fields of `Width` bits; `flip` is added to the words bit by bit.
template <typename Format, int Width, int Count>
void pack_planes(std::byte* record, Rows data, uint32_t flip) {
  each_word<Count * group_records<Format>>(data, [&](int i, Words words) __attribute__((always_inline)) {
    store(record + i / Count * record_step<Format> + i % Count * lanes_bytes, split<Width>(words ^ flip));
  });
}

/// One 16-bit value of every row.
void pack_half(std::byte* to, Rows scales) {
  for (int lane = 0; lane < lanes; ++lane) std::memcpy(to + 2 * lane, scales[lane], 2);
}

/// `Parts` bytes of every row and record of a group.
template <typename Format, int Parts>
void pack_bytes(std::byte* record, Rows scales) {
  each_word<Parts * group_records<Format> / 4>(scales, [&](int i, Words words) __attribute__((always_inline)) {
    for (int k = 0; k < 4; ++k) {
      const int byte = 4 * i + k;
      store_part<Bytes>(record + byte / Parts * record_step<Format> + byte % Parts * lanes, words, k);
    }
  });
}

/// Scales of 16 bits, and minima where there are any, the same for all records of a group. `scale` is their place in
/// the first record.
template <typename Format>
void pack_scales(Format, std::byte* /*header*/, std::byte* scale, Rows scales) {
  for (int record = 0; record < group_records<Format>; ++record, scale += record_step<Format>) {
    for (int i = 0; i < Format::scale_bytes / 2; ++i) pack_half(scale + i * 2 * lanes, scales + 2 * i);
  }
}

void pack_scales(MXFP4, std::byte* /*header*/, std::byte* scale, Rows scales) {
  for (int lane = 0; lane < lanes; ++lane) scale[lane] = *scales[lane];
}

void pack_scales(NVFP4, std::byte* /*header*/, std::byte* scale, Rows scales) {
  each_word<1>(scales, [&](int /*i*/, Words words) {
    // Kernels read seven bits as a float; what stands in the eighth says nothing.
    for (int k = 0; k < 4; ++k) {
      store_part<Bytes>(scale + k / 2 * record_step<NVFP4> + k % 2 * lanes, words & 0x7F7F7F7FU, k);
    }
  });
}

/// Units of scales and minima, then a byte of each for every record.
template <typename Format>
void pack_six_bits(std::byte* header, std::byte* scale, Rows scales) {
  for (int i = 0; i < 2; ++i) {
    pack_half(header + i * 2 * lanes, scales + 2 * i);
    pack_bytes<Format, 1>(scale + i * lanes, scales + 4 + 8 * i);
  }
}

void pack_scales(Q4_K, std::byte* header, std::byte* scale, Rows scales) { pack_six_bits<Q4_K>(header, scale, scales); }

void pack_scales(Q5_K, std::byte* header, std::byte* scale, Rows scales) { pack_six_bits<Q5_K>(header, scale, scales); }

/// A byte for every part of a record, then their units.
template <typename Format>
  requires(Panel<Format>::records_per_header == 8)
void pack_scales(Format, std::byte* header, std::byte* scale, Rows scales) {
  constexpr int parts = Panel<Format>::parts;
  pack_bytes<Format, parts>(scale, scales);
  for (int i = 0; i < Panel<Format>::header_bytes / (2 * lanes); ++i) {
    pack_half(header + i * 2 * lanes, scales + 8 * parts + 2 * i);
  }
}

/// What is packed together: the columns that have a header of their own, or a record.
template <typename Format>
constexpr int piece_columns = std::max<int>(Format::group, record_columns);

/// Integer formats: one group.
template <typename Format>
  requires Panel<Format>::integers
void pack_piece(std::byte* header, std::byte* record, Rows data, Rows scales, int32_t /*count*/) {
  constexpr Planes of = planes<Format>;
  pack_planes<Format, of.width, of.count>(record, data, low_flip<Format>());
  std::byte* const rest = record + of.count * lanes_bytes;
  if constexpr (of.rest_count > 0) {
    const Rows from = data + 4 * of.count * group_records<Format>;
    pack_planes<Format, of.rest_width, of.rest_count>(rest, from, last_flip<Format>());
  }
  pack_scales(Format{}, header, rest + of.rest_count * lanes_bytes, scales);
}

/// Float formats: `count` columns.
template <typename Format>
  requires(!Panel<Format>::integers)
void pack_piece(std::byte* header, std::byte* record, Rows data, Rows scales, int32_t count) {
  constexpr int bytes = Format::data_bytes / Format::group;
  using Column = std::conditional_t<bytes == 4, Words, std::conditional_t<bytes == 2, Halves, Bytes>>;
  if constexpr (Panel<Format>::header_bytes > 0) {
    each_word<1>(scales, [&](int /*i*/, Words words) { store(header, words); });
  }
  for (; count >= record_columns; count -= record_columns, record += record_step<Format>) {
    each_word<record_columns * bytes / 4>(data, [&](int i, Words words) __attribute__((always_inline)) {
      constexpr int in_word = 4 / bytes;
      for (int k = 0; k < in_word; ++k) store_part<Column>(record + (i * in_word + k) * lanes * bytes, words, k);
    });
    data = data + record_columns * bytes;
  }
  for (int k = 0; k < count; ++k) {
    for (int lane = 0; lane < lanes; ++lane) {
      std::memcpy(record + (k * lanes + lane) * bytes, data[lane] + k * bytes, bytes);
    }
  }
}

/// One panel. All rows of some columns come before the next columns, so that what is written stays near. The places of
/// rows that are not there get the last one: nobody looks at their sums.
template <typename Format>
void pack_panel(std::byte* panel, const Weight& rows, int32_t first, int height) {
  using P = Panel<Format>;
  constexpr int columns = piece_columns<Format>;
  constexpr int64_t piece_bytes = 2 * (P::header_bytes + columns / record_columns * P::record_bytes);
  constexpr int groups_in_piece = columns / Format::group;
  const int64_t groups = groups_of<Format>(rows.cols);
  int64_t data_to[panel_height];
  int64_t scales_to[panel_height];
  for (int i = 0; i < panel_height; ++i) {
    const int64_t before = std::min(i, height - 1) * groups;
    data_to[i] = before * Format::data_bytes;
    scales_to[i] = before * Format::scale_bytes;
  }
  const std::byte* data = rows.data + first * groups * Format::data_bytes;
  const std::byte* scales = rows.scales + first * groups * Format::scale_bytes;
  for (int32_t begin = 0; begin < rows.cols; begin += columns, panel += piece_bytes) {
    for (int half = 0; half < 2; ++half) {
      std::byte* const record = panel + 2 * P::header_bytes + half * P::record_bytes;
      pack_piece<Format>(panel + half * P::header_bytes, record, Rows{data, data_to + half * lanes},
                         Rows{scales, scales_to + half * lanes}, std::min(columns, rows.cols - begin));
    }
    data += groups_in_piece * Format::data_bytes;
    scales += groups_in_piece * Format::scale_bytes;
  }
}

template <typename Format>
void pack_rows(std::byte* packed, const Weight& rows, int32_t first_row) {
  const int64_t panel_bytes = panel_bytes_of<Panel<Format>>(rows.cols);
  std::byte* panel = packed + first_row / panel_height * panel_bytes;
  for (int32_t first = 0; first < rows.rows; first += panel_height, panel += panel_bytes) {
    const int height = std::min(panel_height, rows.rows - first);
    if (rows.cols % piece_columns<Format> != 0) std::memset(panel, 0, static_cast<size_t>(panel_bytes));
    pack_panel<Format>(panel, rows, first, height);
  }
}

void pack_panels(Queue /*queue*/, std::byte* packed, const Weight& rows, int32_t first_row) {
  visit_format(rows.format, [&]<typename Format>(Format) { pack_rows<Format>(packed, rows, first_row); });
}

void panel_size(Queue /*queue*/, FormatId format, int32_t cols, PanelSize& size) {
  size.rows = panel_height;
  visit_format(format, [&]<typename Format>(Format) { size.bytes = panel_bytes_of<Panel<Format>>(cols); });
}

const bool added = kernels::pack_panels.add(DeviceKind::cpu, Isa::QUERN_ISA, pack_panels) &&
                   kernels::panel_size.add(DeviceKind::cpu, Isa::QUERN_ISA, panel_size);

}  // namespace
}  // namespace quern::QUERN_ISA
