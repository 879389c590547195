#include "ops/read_all.h"

#include "ops/cost.h"

namespace quern {

void read_all(Exec& exec, Tensor memory, Tensor sums) {
  CHECK(memory.rank == 1 && memory.dtype == Dtype::i32 && memory.dims[0] % 4 == 0);
  CHECK(sums.rank == 1 && sums.dtype == Dtype::i32 && sums.dims[0] > 0);
  tell_bytes(exec, memory, sums);
  kernels::read_all(exec, memory, sums);
}

}  // namespace quern
