// The matrix product of prepared activations with panels of one weight; linear and moe are built on it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/weight.h"
#include "ops/linear.h"

namespace quern::QUERN_ISA::panels {

/// Most tokens that one call of multiply takes.
inline constexpr int max_block_tokens = 192;

/// What a group of 32 columns of one token has besides its 16-bit values: x = scale * value.
struct ActivationGroup {
  float scale = 0.0F;
  float sum = 0.0F;               // of the values, times scale
  int32_t half_sums[2] = {0, 0};  // of the values of columns 0..15 and 16..31
};

/// The sum of x in one of `Parts` parts of a group.
template <int Parts>
inline float part_sum(const ActivationGroup& group, int part) {
  return Parts == 1 ? group.sum : group.scale * static_cast<float>(group.half_sums[part]);
}

/// Activations of a block of tokens as the kernels read them: tiles of some tokens, one after the other; in each
/// [group of 32 columns][token][32], so that a tile is read straight on. Only what the formats of the matrix want is
/// there. Columns beyond the last are 0.
struct Activations {
  int16_t* values = nullptr;
  ActivationGroup* groups = nullptr;
  float* floats = nullptr;
  int32_t tokens = 0;
  int32_t records = 0;  // groups of 32 columns
};

/// Where the group `record` of the tile of `tokens` tokens from `first_token` on is.
inline int64_t group_index(const Activations& x, int first_token, int tokens, int record) {
  return int64_t{first_token} * x.records + int64_t{record} * tokens;
}

/// Where the product of one part goes.
struct Output {
  float* data = nullptr;         // of token 0, row 0 of the part
  int64_t stride = 0;            // between tokens
  const float* scale = nullptr;  // of the part's rows, or none
  const float* bias = nullptr;
  bool accumulate = false;
};

/// Tokens per block: so many that their activations stay in the second-level cache.
int32_t block_tokens(int32_t cols);
int64_t activation_bytes(const Matrix& matrix, int32_t tokens);
/// Lays out memory of activation_bytes().
Activations place_activations(const Matrix& matrix, int32_t tokens, std::byte* memory);
/// Fills the place of token `token` with its row.
void prepare_token(const Activations& to, int32_t token, const float* row, int32_t cols);

int32_t panel_count(const Weight& part);
/// Rows of panels [first, last) for all tokens. One accumulation order per output, whatever the number of tokens.
void multiply(const Weight& part, int32_t first, int32_t last, const Activations& x, const Output& out);

}  // namespace quern::QUERN_ISA::panels
