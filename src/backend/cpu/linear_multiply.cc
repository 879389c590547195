#include "backend/cpu/linear_multiply.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/cpu/linear_many.h"
#include "backend/cpu/linear_product.h"
#include "backend/cpu/linear_tiles.h"

namespace quern::QUERN_ISA::panels {
namespace {

constexpr int largest_value = 32767;

/// Wants of the formats in a matrix.
bool wants(const Matrix& matrix, bool integers) {
  for (int i = 0; i < matrix.count; ++i) {
    bool is_integer = false;
    visit_format(matrix.parts[i].format, [&]<typename Format>(Format) { is_integer = Panel<Format>::integers; });
    if (is_integer == integers) return true;
  }
  return false;
}

/// 32 floats as 16-bit values with one scale. A value that is not finite makes the scale so, hence all products.
QUERN_INLINE void quantize(const float* x, int16_t* values, ActivationGroup& group) {
  constexpr int vectors = record_columns / lanes;
  Ints magnitudes{};
  for (int i = 0; i < vectors; ++i) {
    const Ints bits = bits_of(load(x + i * lanes)) & 0x7FFFFFFF;
    magnitudes = bits > magnitudes ? bits : magnitudes;
  }
  const auto largest = std::bit_cast<float>(__builtin_reduce_max(magnitudes));
  const bool tiny = largest < 1e-30F;  // the inverse would overflow; such a group counts as zero
  const float magnitude = tiny ? 0.0F : largest;
  const float inverse = tiny ? 0.0F : largest_value / magnitude;
  constexpr float magic = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  Ints sums[2] = {};
  for (int i = 0; i < vectors; ++i) {
    const Ints rounded = bits_of(load(x + i * lanes) * inverse + magic) - std::bit_cast<int32_t>(magic);
    using Values [[gnu::vector_size(lanes * 2)]] = int16_t;
    const auto narrow = __builtin_convertvector(rounded, Values);
    std::memcpy(values + i * lanes, &narrow, sizeof narrow);
    sums[2 * i / vectors] += __builtin_convertvector(narrow, Ints);
  }
  for (int half = 0; half < 2; ++half) group.half_sums[half] = __builtin_reduce_add(sums[half]);
  group.scale = magnitude / largest_value;
  group.sum = group.scale * static_cast<float>(group.half_sums[0] + group.half_sums[1]);
}

/// Rows [row, row + rows) of a token; `sums` are those of the panel.
QUERN_INLINE void write_panel(const Output& out, int token, int row, int rows, const Floats (&sums)[2]) {
  float* y = out.data + token * out.stride + row;
  const float* scale = out.scale == nullptr ? nullptr : out.scale + row;
  const float* bias = out.bias == nullptr ? nullptr : out.bias + row;
  if (rows == panel_height) {
    for (int half = 0; half < 2; ++half) {
      Floats value = sums[half];
      if (scale != nullptr) value *= load(scale + half * lanes);
      if (bias != nullptr) value += load(bias + half * lanes);
      store(y + half * lanes, out.accumulate ? load(y + half * lanes) + value : value);
    }
    return;
  }
  float values[panel_height];
  for (int half = 0; half < 2; ++half) store(values + half * lanes, sums[half]);
  for (int i = 0; i < rows; ++i) {
    if (scale != nullptr) values[i] *= scale[i];
    if (bias != nullptr) values[i] += bias[i];
    y[i] = out.accumulate ? y[i] + values[i] : values[i];
  }
}

/// The tile that begins with token `first`, times the panel that begins with row `row`.
template <typename P, int Tokens>
[[gnu::noinline]] void multiply_tile(const std::byte* panel, const Activations& x, int first, int row, int rows,
                                     const Output& out) {
  const int64_t index = group_index(x, first, Tokens, 0);
  Tile tile{.records = x.records};
  if constexpr (P::integers) {
    tile.values = x.values + index * record_columns;
    tile.groups = x.groups + index;
  } else {
    tile.floats = x.floats + index * record_columns;
  }
  Sums<Tokens> sums;
  for (int t = 0; t < Tokens; ++t) sums.of[0][t] = sums.of[1][t] = broadcast(0.0F);
  add_product<P, Tokens>(panel, tile, sums);
  for (int t = 0; t < Tokens; ++t) write_panel(out, first + t, row, rows, {sums.of[0][t], sums.of[1][t]});
}

/// All tokens times one panel; `row` is its first.
template <typename P>
void multiply_panel(const Weight& part, int row, const Activations& x, const Output& out) {
  const std::byte* panel = part.data + row / panel_height * panel_bytes_of<P>(part.cols);
  const int rows = part.rows - row < panel_height ? part.rows - row : panel_height;
  if (x.tokens <= P::most_direct_tokens) {
    return for_each_tile < P::most_direct_tokens<few_tile ? 1 : few_tile>(
                               x.tokens,
                               [&]<int Tokens>(int first, std::integral_constant<int, Tokens>) {
                                 multiply_tile<P, Tokens>(panel, x, first, row, rows, out);
                               });
  }
  alignas(64) float sums[max_block_tokens * panel_height];
  std::memset(sums, 0, sizeof(float) * static_cast<size_t>(x.tokens * panel_height));
  many<P>(panel, x, sums);
  for (int t = 0; t < x.tokens; ++t) {
    const float* of_token = sums + t * panel_height;
    write_panel(out, t, row, rows, {load_floats(of_token), load_floats(of_token + lanes)});
  }
}

}  // namespace

int32_t block_tokens(int32_t cols) {
  constexpr int32_t cache_bytes = 320 << 10;
  const int32_t tokens = cache_bytes / (cols * 5 / 2 + 1) / many_tile * many_tile;
  constexpr int32_t least = 48;
  return tokens < least ? least : tokens > max_block_tokens ? max_block_tokens : tokens;
}

int64_t activation_bytes(const Matrix& matrix, int32_t tokens) {
  const int64_t groups = int64_t{tokens} * records_of(matrix.cols);
  constexpr int64_t integer_bytes = record_columns * sizeof(int16_t) + sizeof(ActivationGroup);
  constexpr int64_t float_bytes = record_columns * sizeof(float);
  return groups * ((wants(matrix, true) ? integer_bytes : 0) + (wants(matrix, false) ? float_bytes : 0));
}

Activations place_activations(const Matrix& matrix, int32_t tokens, std::byte* memory) {
  const int32_t records = records_of(matrix.cols);
  const int64_t groups = int64_t{tokens} * records;
  Activations to{.tokens = tokens, .records = records};
  if (wants(matrix, true)) {
    to.values = reinterpret_cast<int16_t*>(memory);
    memory += groups * record_columns * static_cast<int64_t>(sizeof(int16_t));
    to.groups = reinterpret_cast<ActivationGroup*>(memory);
    memory += groups * static_cast<int64_t>(sizeof(ActivationGroup));
  }
  if (wants(matrix, false)) to.floats = reinterpret_cast<float*>(memory);
  return to;
}

void prepare_token(const Activations& to, int32_t token, const float* row, int32_t cols) {
  const int tile = tile_of(to.tokens, token);
  const int first = tile_begin(to.tokens, tile);
  const int tokens = tile_begin(to.tokens, tile + 1) - first;
  for (int32_t record = 0; record < to.records; ++record) {
    const int64_t group = group_index(to, first, tokens, record) + token - first;
    const float* from = row + record * record_columns;
    float padded[record_columns];
    if (const int32_t left = cols - record * record_columns; left < record_columns) {
      std::fill_n(padded, record_columns, 0.0F);
      std::copy_n(from, left, padded);
      from = padded;
    }
    if (to.values != nullptr) quantize(from, to.values + group * record_columns, to.groups[group]);
    if (to.floats != nullptr) std::memcpy(to.floats + group * record_columns, from, sizeof padded);
  }
}

int32_t panel_count(const Weight& part) { return (part.rows + panel_height - 1) / panel_height; }

void multiply(const Weight& part, int32_t first, int32_t last, const Activations& x, const Output& out) {
  DCHECK(x.tokens >= 1 && x.tokens <= max_block_tokens);
  visit_format(part.format, [&]<typename Format>(Format) {
    for (int32_t panel = first; panel < last; ++panel) {
      multiply_panel<Panel<Format>>(part, panel * panel_height, x, out);
    }
  });
}

}  // namespace quern::QUERN_ISA::panels
