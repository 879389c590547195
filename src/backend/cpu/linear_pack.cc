// From rows of a format to panels (linear_panels.h).
#include <algorithm>
#include <cstring>

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

/// Widths of the fields in the planes of a half record, and how many planes have each.
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

template <int Width>
void split_planes(std::byte* plane, int count) {
  if constexpr (Width > 0) {
    for (const std::byte* const end = plane + count * lanes_bytes; plane < end; plane += lanes_bytes) {
      const Words words = split<Width>(panels::load_as<Words>(plane));
      std::memcpy(plane, &words, sizeof words);
    }
  }
}

/// The planes of a half record, which hold words as rows have them, become what kernels read.
template <typename Format>
void split_record(std::byte* record) {
  constexpr Planes of = planes<Format>;
  split_planes<of.width>(record, of.count);
  split_planes<of.rest_width>(record + of.count * lanes_bytes, of.rest_count);
}

/// One row's places in a record: word `index` of the planes (split later, for all rows at once), then 16- and 8-bit
/// scales behind them.
struct Lane {
  std::byte* record;
  int lane;

  void word(int index, uint32_t value) const { std::memcpy(record + index * lanes_bytes + 4 * lane, &value, 4); }
  void half(int offset, uint32_t value) const {
    const auto narrow = static_cast<uint16_t>(value);
    std::memcpy(record + offset + 2 * lane, &narrow, 2);
  }
  void byte(int offset, std::byte value) const { record[offset + lane] = value; }
};

/// A format's group as stored in Layout::rows, and which of its records of 32 columns is meant.
struct Stored {
  const std::byte* data;
  const std::byte* scales;
  int record;
};

void low_bits(Lane to, const std::byte* data) {
  for (int i = 0; i < 4; ++i) to.word(i, load_u32(data + 4 * i));
}

void pack(Q4_0, Lane to, Lane /*header*/, Stored from) {
  low_bits(to, from.data);
  to.half(4 * lanes_bytes, load_u16(from.scales));
}

void pack(Q4_1, Lane to, Lane /*header*/, Stored from) {
  low_bits(to, from.data);
  to.half(4 * lanes_bytes, load_u16(from.scales));
  to.half(4 * lanes_bytes + 2 * lanes, load_u16(from.scales + 2));
}

void pack(Q5_0, Lane to, Lane /*header*/, Stored from) {
  low_bits(to, from.data);
  to.word(4, load_u32(from.data + 16));
  to.half(5 * lanes_bytes, load_u16(from.scales));
}

void pack(Q8_0, Lane to, Lane /*header*/, Stored from) {
  for (int i = 0; i < 8; ++i) to.word(i, load_u32(from.data + 4 * i) ^ 0x80808080U);
  to.half(8 * lanes_bytes, load_u16(from.scales));
}

void pack(Q4_K, Lane to, Lane header, Stored from) {
  low_bits(to, from.data + 16 * from.record);
  to.byte(4 * lanes_bytes, from.scales[4 + from.record]);
  to.byte(4 * lanes_bytes + lanes, from.scales[12 + from.record]);
  header.half(0, load_u16(from.scales));
  header.half(2 * lanes, load_u16(from.scales + 2));
}

void pack(Q6_K, Lane to, Lane header, Stored from) {
  low_bits(to, from.data + 16 * from.record);
  for (int i = 0; i < 2; ++i) {
    to.word(4 + i, load_u32(from.data + 128 + 8 * from.record + 4 * i));
    to.byte(6 * lanes_bytes + i * lanes, from.scales[2 * from.record + i]);
  }
  header.half(0, load_u16(from.scales + 16));
}

/// The codes of one record.
template <typename Format>
void pack_codes(Lane to, Stored from) {
  constexpr int bits = Format::low_bits;
  constexpr uint32_t flip = panels::stored_flip<Format>();
  constexpr uint32_t low_flip = (flip & ((1U << bits) - 1)) * (bits == 4 ? 0x11111111U : 0x55555555U);
  constexpr uint32_t last_flip = flip >> bits != 0 ? 0xFFFFFFFFU : 0U;
  for (int i = 0; i < bits; ++i) {
    to.word(i, load_u32(from.data + 4 * (bits * from.record + i)) ^ low_flip);
  }
  if constexpr (Format::has_last_bit) {
    to.word(bits, load_u32(from.data + Format::low_bytes + 4 * from.record) ^ last_flip);
  }
}

/// Where the scales of a format of codes are.
template <typename Format>
constexpr int behind_planes = Panel<Format>::planes_bytes;

void pack_scales(Q2_0, Lane to, Lane /*header*/, Stored from) { to.half(behind_planes<Q2_0>, load_u16(from.scales)); }

void pack_scales(IQ4_NL, Lane to, Lane /*header*/, Stored from) {
  to.half(behind_planes<IQ4_NL>, load_u16(from.scales));
}

void pack_scales(MXFP4, Lane to, Lane /*header*/, Stored from) { to.byte(behind_planes<MXFP4>, from.scales[0]); }

void pack_scales(NVFP4, Lane to, Lane /*header*/, Stored from) {
  for (int i = 0; i < 2; ++i) {
    // Kernels read seven bits as a float; what stands in the eighth says nothing.
    to.byte(behind_planes<NVFP4> + i * lanes, from.scales[2 * from.record + i] & std::byte{0x7F});
  }
}

void pack_scales(Q5_1, Lane to, Lane /*header*/, Stored from) {
  to.half(behind_planes<Q5_1>, load_u16(from.scales));
  to.half(behind_planes<Q5_1> + 2 * lanes, load_u16(from.scales + 2));
}

void pack_scales(Q5_K, Lane to, Lane header, Stored from) {
  to.byte(behind_planes<Q5_K>, from.scales[4 + from.record]);
  to.byte(behind_planes<Q5_K> + lanes, from.scales[12 + from.record]);
  header.half(0, load_u16(from.scales));
  header.half(2 * lanes, load_u16(from.scales + 2));
}

void pack_scales(Q2_K, Lane to, Lane header, Stored from) {
  for (int i = 0; i < 2; ++i) to.byte(behind_planes<Q2_K> + i * lanes, from.scales[2 * from.record + i]);
  header.half(0, load_u16(from.scales + 16));
  header.half(2 * lanes, load_u16(from.scales + 18));
}

/// Of formats like q3_k.
template <typename Format>
void pack_scales(Format, Lane to, Lane header, Stored from) {
  constexpr int parts = Panel<Format>::parts;
  for (int i = 0; i < parts; ++i) to.byte(behind_planes<Format> + i * lanes, from.scales[parts * from.record + i]);
  header.half(0, load_u16(from.scales + Format::blocks));
}

template <panels::OfCodes Format>
void pack(Format format, Lane to, Lane header, Stored from) {
  pack_codes<Format>(to, from);
  pack_scales(format, to, header, from);
}

/// Columns that are packed together: what has a header of its own, or a record.
template <typename Format>
constexpr int piece_columns = std::max<int>(Format::group, record_columns);

/// Integer formats: the records of one row's group.
template <typename Format>
  requires Panel<Format>::integers
void pack_piece(std::byte* piece, int half, int lane, const std::byte* data, const std::byte* scales,
                int32_t /*count*/) {
  using P = Panel<Format>;
  constexpr int records_in_group = Format::group / record_columns;
  static_assert(P::records_per_header == 1 || P::records_per_header == records_in_group);
  std::byte* const header = piece + half * P::header_bytes;
  std::byte* record = piece + 2 * P::header_bytes + half * P::record_bytes;
  for (int i = 0; i < records_in_group; ++i, record += 2 * P::record_bytes) {
    pack(Format{}, Lane{record, lane}, Lane{header, lane}, Stored{data, scales, i});
  }
}

/// Float formats: element `lane` of `count` columns.
template <typename Format>
  requires(!Panel<Format>::integers)
void pack_piece(std::byte* piece, int half, int lane, const std::byte* data, const std::byte* scales, int32_t count) {
  using P = Panel<Format>;
  constexpr int bytes = Format::data_bytes / Format::group;
  if constexpr (P::header_bytes > 0) {
    std::memcpy(piece + half * P::header_bytes + lane * Format::scale_bytes, scales, Format::scale_bytes);
  }
  std::byte* record = piece + 2 * P::header_bytes + half * P::record_bytes;
  for (int32_t first = 0; first < count; first += record_columns, record += 2 * P::record_bytes) {
    for (int k = 0; k < std::min<int32_t>(record_columns, count - first); ++k) {
      std::memcpy(record + (k * lanes + lane) * bytes, data + int64_t{first + k} * bytes, bytes);
    }
  }
}

/// One panel of `height` rows. All rows of some columns come before the next columns, so that what is written stays
/// near.
template <typename Format>
void pack_panel(std::byte* panel, const Weight& rows, int32_t first, int height) {
  using P = Panel<Format>;
  constexpr int columns = piece_columns<Format>;
  constexpr int64_t piece_bytes = 2 * (P::header_bytes + columns / record_columns * P::record_bytes);
  constexpr int groups_in_piece = columns / Format::group;
  const int64_t groups = rows.cols / Format::group;
  for (int32_t begin = 0, piece = 0; begin < rows.cols; begin += columns, ++piece) {
    for (int i = 0; i < height; ++i) {
      const int64_t at = (first + i) * groups + int64_t{piece} * groups_in_piece;
      pack_piece<Format>(panel + piece * piece_bytes, i / lanes, i % lanes, rows.data + at * Format::data_bytes,
                         rows.scales + at * Format::scale_bytes, std::min(columns, rows.cols - begin));
    }
    if constexpr (P::integers) {
      std::byte* record = panel + piece * piece_bytes + 2 * P::header_bytes;
      for (int i = 0; i < 2 * columns / record_columns; ++i) split_record<Format>(record + i * P::record_bytes);
    }
  }
}

template <typename Format>
void pack_rows(std::byte* packed, const Weight& rows, int32_t first_row) {
  const int64_t panel_bytes = panel_bytes_of<Panel<Format>>(rows.cols);
  std::byte* panel = packed + first_row / panel_height * panel_bytes;
  for (int32_t first = 0; first < rows.rows; first += panel_height, panel += panel_bytes) {
    const int height = std::min(panel_height, rows.rows - first);
    const bool whole = height == panel_height && rows.cols % piece_columns<Format> == 0;
    if (!whole) std::memset(panel, 0, static_cast<size_t>(panel_bytes));
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
