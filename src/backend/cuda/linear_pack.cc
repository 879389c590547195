// From rows of a format to what lies in GPU memory (packed.cuh).
#include <cstring>

#include "backend/cuda/packed.cuh"
#include "ops/linear.h"

namespace quern::cuda {
namespace {

/// Where a row's share of a record goes: block `block` of 32 columns.
template <typename Format>
struct Target {
  using P = Packed<Format>;
  std::byte* record;
  int row;  // in the panel
  int block;

  int lane(int t) const { return 4 * (row % 8) + t; }
  void low(int t, uint32_t word) const {
    store_u32(record + 16 * (32 * (block / 2) + lane(t)) + 4 * (2 * (row / 8) + block % 2), word);
  }
  /// Adds bits to a word that began as zeros.
  void high(int t, int index, uint32_t bits) const {
    std::byte* const to = record + P::high_offset + 4 * (P::high * lane(t) + index);
    store_u32(to, load_u32(to) | bits);
  }
  void scale(int index, uint32_t word) const {
    store_u32(record + P::scale_offset + 4 * (P::scale * lane(block) + index), word);
  }
  void half_scale(uint32_t bits) const { store_u16(record + P::scale_offset + 4 * lane(block) + 2 * (row / 8), bits); }
};

/// A format's group as stored in Layout::rows, and which of its blocks of 32 columns is meant.
struct Stored {
  const std::byte* data;
  const std::byte* scales;
  int block;
};

template <typename Format>
void low_bits(const Target<Format>& to, const std::byte* data) {
  for (int t = 0; t < 4; ++t) to.low(t, split<4>(load_u32(data + 4 * t)));
}

void pack(const Target<Q4_0>& to, Stored from) {
  low_bits(to, from.data);
  to.half_scale(load_u16(from.scales));
}

void pack(const Target<Q4_1>& to, Stored from) {
  low_bits(to, from.data);
  to.scale(to.row / 8, load_u32(from.scales));
}

void pack(const Target<Q5_0>& to, Stored from) {
  low_bits(to, from.data);
  for (int t = 0; t < 4; ++t) {
    to.high(t, to.row / 8, split<1>(static_cast<uint32_t>(from.data[16 + t]) << (8 * to.block)));
  }
  to.half_scale(load_u16(from.scales));
}

void pack(const Target<Q8_0>& to, Stored from) {
  for (int t = 0; t < 4; ++t) {
    std::memcpy(to.record + 16 * (32 * to.block + to.lane(t)) + 8 * (to.row / 8), from.data + 8 * t, 8);
  }
  to.half_scale(load_u16(from.scales));
}

void pack(const Target<Q4_K>& to, Stored from) {
  low_bits(to, from.data + 16 * from.block);
  to.half_scale(static_cast<uint32_t>(from.scales[4 + from.block]) | static_cast<uint32_t>(from.scales[12 + from.block])
                                                                         << 8);
}

void pack(const Target<Q5_K>& to, Stored from) {
  low_bits(to, from.data + 16 * from.block);
  for (int t = 0; t < 4; ++t) {
    const auto high = static_cast<uint32_t>(from.data[Q5_K::low_bytes + 4 * from.block + t]);
    to.high(t, to.row / 8, split<1>(high << (8 * to.block)));
  }
  to.half_scale(static_cast<uint32_t>(from.scales[4 + from.block]) | static_cast<uint32_t>(from.scales[12 + from.block])
                                                                         << 8);
}

/// Lanes take four values of each half of the block.
void pack(const Target<Q6_K>& to, Stored from) {
  const std::byte* const low = from.data + 16 * from.block;
  const std::byte* const high = from.data + 128 + 8 * from.block;
  for (int t = 0; t < 4; ++t) {
    to.low(t, split<4>(load_u16(low + 2 * t) | load_u16(low + 8 + 2 * t) << 16));
    const uint32_t bits = static_cast<uint32_t>(high[t]) | static_cast<uint32_t>(high[4 + t]) << 8;
    to.high(t, 2 * (to.row / 8) + to.block / 2, split<2>(bits << (16 * (to.block % 2))));
  }
  to.half_scale(load_u16(from.scales + 2 * from.block));
}

template <typename Format>
void pack_row(std::byte* panel, int row, const std::byte* data, const std::byte* scales, int32_t cols) {
  using P = Packed<Format>;
  constexpr int blocks = Format::group / 32;
  std::byte* const records = panel + headers_bytes<Format>(cols);
  for (int32_t block = 0; block < cols / 32; ++block) {
    const int64_t group = block / blocks;
    const Stored from{data + group * Format::data_bytes, scales + group * Format::scale_bytes, block % blocks};
    pack(Target<Format>{records + int64_t{block / 4} * P::record_bytes, row, block % 4}, from);
    if constexpr (P::header > 0) {
      constexpr int at = Format::id == FormatId::q6_k ? 16 : 0;  // of d in the stored scales
      std::byte* const header = panel + group * panel_height * P::header;
      std::memcpy(header + P::header * (2 * (row % 8) + row / 8), from.scales + at, P::header);
    }
  }
}

template <typename Format>
void pack_rows(std::byte* packed, const Weight& rows, int32_t first_row) {
  const int64_t bytes = panel_bytes<Format>(rows.cols);
  if constexpr (is_float<Format>) {
    std::memcpy(packed + first_row * bytes, rows.data, static_cast<size_t>(rows.rows * bytes));
  } else if constexpr (is_coded<Format>) {
    const int64_t data_bytes = int64_t{rows.cols} / Format::group * Format::data_bytes;
    const int64_t scale_bytes = int64_t{rows.cols} / Format::group * Format::scale_bytes;
    for (int32_t i = 0; i < rows.rows; ++i) {
      std::byte* const to = packed + (first_row + i) * bytes;
      std::memset(to, 0, static_cast<size_t>(bytes));
      std::memcpy(to, rows.data + i * data_bytes, static_cast<size_t>(data_bytes));
      std::memcpy(to + data_bytes, rows.scales + i * scale_bytes, static_cast<size_t>(scale_bytes));
    }
  } else if constexpr (is_f8<Format>) {
    const int64_t data_bytes = groups_of<Format>(rows.cols) * Format::data_bytes;
    const int64_t scale_bytes = groups_of<Format>(rows.cols) * Format::scale_bytes;
    for (int32_t i = 0; i < rows.rows; ++i) {
      std::byte* const to = packed + (first_row + i) * bytes;
      std::memset(to, 0, static_cast<size_t>(bytes));
      const std::byte* const from = rows.data + i * data_bytes;
      for (int32_t k = 0; k < rows.cols; ++k) to[f8_place(k)] = from[k];
      if (scale_bytes == 0) continue;
      std::memcpy(to + f8_columns(rows.cols), rows.scales + i * scale_bytes, static_cast<size_t>(scale_bytes));
    }
  } else {
    const int64_t groups = rows.cols / Format::group;
    std::byte* panel = packed + first_row / panel_height * bytes;
    for (int32_t first = 0; first < rows.rows; first += panel_height, panel += bytes) {
      std::memset(panel, 0, static_cast<size_t>(bytes));
      for (int i = 0; i < panel_height && first + i < rows.rows; ++i) {
        const int64_t at = (first + i) * groups;
        pack_row<Format>(panel, i, rows.data + at * Format::data_bytes, rows.scales + at * Format::scale_bytes,
                         rows.cols);
      }
    }
  }
}

void pack_panels(Queue /*queue*/, std::byte* packed, const Weight& rows, int32_t first_row) {
  visit_format(rows.format, [&]<typename Format>(Format) { pack_rows<Format>(packed, rows, first_row); });
}

void panel_size(Queue /*queue*/, FormatId format, int32_t cols, PanelSize& size) {
  visit_format(format, [&]<typename Format>(Format) {
    size.rows = in_rows<Format> ? 1 : panel_height;
    size.bytes = panel_bytes<Format>(cols);
  });
}

const bool added =
    kernels::pack_panels.add(DeviceKind::cuda, pack_panels) && kernels::panel_size.add(DeviceKind::cuda, panel_size);

}  // namespace
}  // namespace quern::cuda
