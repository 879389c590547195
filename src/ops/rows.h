// rows: rows of a weight as floats, the embedding lookup.
#pragma once

#include "formats/weight.h"
#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

/// y[t] = scale * table[ids[t]].   table: packed   ids: [tokens] i32   y: [tokens, cols] f32
/// An id outside the table gives zeros: the token after logits that were not finite, whose request ends.
Tensor embed(Exec& exec, const Weight& table, Tensor ids, float scale);

/// Tokens that only the device knows: ids[t] < 0 becomes next[-1 - ids[t]], the last token sampled for that row.
/// ids: [tokens] i32   next: [rows] i32
void take_next_tokens(Exec& exec, Tensor ids, Tensor next);

/// table[places[i]] = values[i].   table, places, values: i32, one axis
void set_entries(Exec& exec, Tensor table, Tensor places, Tensor values);

namespace kernels {
inline constinit Kernel<void(Tensor table, Tensor places, Tensor values)> set_entries{"set_entries"};
inline constinit Kernel<void(Tensor ids, Tensor next)> take_next_tokens{"take_next_tokens"};
inline constinit Kernel<void(Tensor y, const Weight& table, Tensor ids, float scale)> embed{"embed"};
}  // namespace kernels

}  // namespace quern
