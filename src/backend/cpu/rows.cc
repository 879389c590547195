#include "ops/rows.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/linear_codes.h"
#include "base/thread_pool.h"

namespace quern::QUERN_ISA {
namespace {

using panels::Panel;
using panels::panel_height;
using panels::record_columns;

/// The 32 columns of a record in one lane.
template <typename P, int Part>
void read_part(const std::byte* record, const typename P::Header& header, int lane, float* out) {
  int16_t all[16][2 * lanes];
  P::template pairs<Part>(record,
                          [&]<int J>(panels::Pair<J>, Ints values) { std::memcpy(all[J], &values, sizeof values); });
  const float scale = P::template scale<Part>(record, header)[lane];
  constexpr int pairs = 16 / P::parts;
  for (int j = Part * pairs; j < (Part + 1) * pairs; ++j) {
    for (int half = 0; half < 2; ++half) {
      out[2 * j + half] = scale * static_cast<float>(all[j][2 * lane + half] - P::zero);
    }
  }
  if constexpr (P::has_minimum) {
    const float minimum = P::template minimum<Part>(record, header)[lane];
    for (int i = Part * 2 * pairs; i < (Part + 1) * 2 * pairs; ++i) out[i] += minimum;
  }
}

template <typename P>
  requires P::integers
void read_row(const std::byte* panel, int half, int lane, int32_t cols, float* out) {
  typename P::Header header;
  for (int record = 0; record < cols / record_columns; ++record, out += record_columns) {
    if (record % P::records_per_header == 0) {
      header = P::load_header(panel + half * P::header_bytes);
      panel += 2 * P::header_bytes;
    }
    const std::byte* const values = panel + half * P::record_bytes;
    read_part<P, 0>(values, header, lane, out);
    if constexpr (P::parts == 2) read_part<P, 1>(values, header, lane, out);
    panel += 2 * P::record_bytes;
  }
}

template <typename P>
  requires(!P::integers)
void read_row(const std::byte* panel, int half, int lane, int32_t cols, float* out) {
  typename P::Header header{};
  for (int32_t first = 0; first < cols; first += record_columns) {
    if (first / record_columns % P::records_per_header == 0) {
      header = P::load_header(panel + half * P::header_bytes);
      panel += 2 * P::header_bytes;
    }
    for (int k = 0; k < record_columns && first + k < cols; ++k) {
      out[first + k] = P::column(panel + half * P::record_bytes, header, k)[lane];
    }
    panel += 2 * P::record_bytes;
  }
}

void embed(Queue queue, Tensor y, const Weight& table, Tensor ids, float scale) {
  auto& pool = *static_cast<ThreadPool*>(queue.native);
  pool.parallel_for(ids.dims[0], 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t row = ids.as<int32_t>()[t];
      float* out = y.row<float>(t);
      if (row < 0 || row >= table.rows) {
        std::fill_n(out, table.cols, 0.0F);
        continue;
      }
      visit_format(table.format, [&]<typename Format>(Format) {
        using P = Panel<Format>;
        const std::byte* const panel = table.data + row / panel_height * panels::panel_bytes_of<P>(table.cols);
        read_row<P>(panel, row % panel_height / lanes, row % lanes, table.cols, out);
      });
      for (int32_t k = 0; k < table.cols; ++k) out[k] *= scale;
    }
  });
}

void take_next_tokens(Queue /*queue*/, Tensor ids, Tensor next) {
  int32_t* const id = ids.as<int32_t>();
  for (int32_t t = 0; t < ids.dims[0]; ++t) {
    if (id[t] < 0) id[t] = next.as<int32_t>()[-1 - id[t]];
  }
}

void set_entries(Queue /*queue*/, Tensor table, Tensor places, Tensor values) {
  for (int32_t i = 0; i < places.dims[0]; ++i) table.as<int32_t>()[places.as<int32_t>()[i]] = values.as<int32_t>()[i];
}

const bool entries_added = kernels::set_entries.add(DeviceKind::cpu, Isa::QUERN_ISA, set_entries);
const bool next_added = kernels::take_next_tokens.add(DeviceKind::cpu, Isa::QUERN_ISA, take_next_tokens);
const bool added = kernels::embed.add(DeviceKind::cpu, Isa::QUERN_ISA, embed);

}  // namespace
}  // namespace quern::QUERN_ISA
