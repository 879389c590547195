// read_all: reads memory and keeps nothing; how fast that goes is the limit of all that is bound by memory.
#pragma once

#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

/// sums[i] = the sum of some of the words of `memory`; together they are all of them.   memory: [words] i32, dense, a
/// multiple of 4   sums: [any number] i32
void read_all(Exec& exec, Tensor memory, Tensor sums);

namespace kernels {
inline constinit Kernel<void(Tensor memory, Tensor sums)> read_all{"read_all"};
}  // namespace kernels

}  // namespace quern
