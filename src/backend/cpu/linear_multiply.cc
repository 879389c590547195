#include "backend/cpu/linear_multiply.h"

#include <bit>
#include <cstring>

#include "backend/cpu/linear_few.h"
#include "backend/cpu/linear_many.h"

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
void quantize(const float* x, int16_t* values, ActivationGroup& group) {
  uint32_t largest = 0;
  for (int i = 0; i < record_columns; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFU;
    largest = magnitude > largest ? magnitude : largest;
  }
  // Below this the inverse overflows; such a group counts as zero.
  const bool tiny = largest < std::bit_cast<uint32_t>(1e-30F);
  const float magnitude = tiny ? 0.0F : std::bit_cast<float>(largest);
  const float inverse = tiny ? 0.0F : largest_value / magnitude;
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
  constexpr float magic = 12582912.0F;
  int32_t sums[2] = {0, 0};
  for (int half = 0; half < 2; ++half) {
    for (int i = 16 * half; i < 16 * half + 16; ++i) {
      const int32_t bits = std::bit_cast<int32_t>(x[i] * inverse + magic);
      const auto value = static_cast<int16_t>(bits - std::bit_cast<int32_t>(magic));
      values[i] = value;
      sums[half] += value;
    }
  }
  group.scale = magnitude / largest_value;
  group.sum = group.scale * static_cast<float>(sums[0] + sums[1]);
  group.half_sums[0] = sums[0];
  group.half_sums[1] = sums[1];
}

void write(const Output& out, int token, int row, int rows, const float* sums) {
  float* y = out.data + token * out.stride + row;
  for (int i = 0; i < rows; ++i) {
    float value = sums[i];
    if (out.bias != nullptr) value += out.bias[row + i];
    y[i] = out.accumulate ? y[i] + value : value;
  }
}

template <typename P, int Tokens>
void few_tokens(const std::byte* const (&panel)[2], const Activations& x, float* out) {
  Sums<Tokens> sums;
  for (int t = 0; t < Tokens; ++t) sums.of[0][t] = sums.of[1][t] = broadcast(0.0F);
  few<P, Tokens>(panel, x, sums);
  for (int t = 0; t < Tokens; ++t) {
    for (int p = 0; p < 2; ++p) store_floats(out + (t * 2 + p) * lanes, sums.of[p][t]);
  }
}

/// Rows [row, row + 2 * lanes) of a part, as far as there are. Without a second panel the first is multiplied twice.
template <typename P>
void multiply_unit(const Weight& part, int row, const Activations& x, const Output& out) {
  const int64_t panel_bytes = panel_bytes_of<P>(part.cols);
  const std::byte* first = part.data + row / lanes * panel_bytes;
  const std::byte* const panel[2] = {first, part.rows - row > lanes ? first + panel_bytes : first};
  alignas(64) float sums[max_block_tokens * 2 * lanes];
  switch (x.tokens) {
    case 1: few_tokens<P, 1>(panel, x, sums); break;
    case 2: few_tokens<P, 2>(panel, x, sums); break;
    case 3: few_tokens<P, 3>(panel, x, sums); break;
    case 4: few_tokens<P, 4>(panel, x, sums); break;
    default: std::memset(sums, 0, sizeof(float) * static_cast<size_t>(x.tokens * 2 * lanes)); many<P>(panel, x, sums);
  }
  // The two panels of a token lie side by side, as their rows do in the result.
  for (int t = 0; t < x.tokens; ++t) {
    const float* of_token = sums + t * 2 * lanes;
    if (part.rows - row >= 2 * lanes) {
      write(out, t, row, 2 * lanes, of_token);
    } else {
      write(out, t, row, part.rows - row, of_token);
    }
  }
}

}  // namespace

int32_t block_tokens(int32_t cols) {
  constexpr int32_t cache_bytes = 320 << 10;
  const int32_t tokens = cache_bytes / (cols * 5 / 2 + 1) / tile_tokens * tile_tokens;
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

void prepare_token(const Activations& to, int32_t index, const float* x, int32_t cols) {
  for (int32_t record = 0; record < to.records; ++record) {
    const int64_t group = int64_t{record} * to.tokens + index;
    const float* from = x + record * record_columns;
    const int32_t count = cols - record * record_columns;
    float padded[record_columns] = {};
    if (count < record_columns) {
      std::memcpy(padded, from, sizeof(float) * static_cast<size_t>(count));
      from = padded;
    }
    if (to.values != nullptr) quantize(from, to.values + group * record_columns, to.groups[group]);
    if (to.floats != nullptr) std::memcpy(to.floats + group * record_columns, from, sizeof padded);
  }
}

int32_t unit_count(const Weight& part) { return (part.rows + 2 * lanes - 1) / (2 * lanes); }

void multiply(const Weight& part, int32_t first, int32_t last, const Activations& x, const Output& out) {
  DCHECK(x.tokens >= 1 && x.tokens <= max_block_tokens);
  visit_format(part.format, [&]<typename Format>(Format) {
    for (int32_t unit = first; unit < last; ++unit) multiply_unit<Panel<Format>>(part, unit * 2 * lanes, x, out);
  });
}

}  // namespace quern::QUERN_ISA::panels
