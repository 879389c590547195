// rows: rows of a weight as floats, the embedding lookup.
#pragma once

#include "formats/weight.h"
#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

/// y[t] = scale * table[ids[t]].   table: packed   ids: [tokens] i32   y: [tokens, cols] f32
Tensor embed(Exec& exec, const Weight& table, Tensor ids, float scale);

namespace kernels {
inline constinit Kernel<void(Tensor y, const Weight& table, Tensor ids, float scale)> embed{"embed"};
}  // namespace kernels

}  // namespace quern
