#include "ops/rows.h"

#include "ops/cost.h"
#include "ops/linear.h"

namespace quern {

Tensor embed(Exec& exec, const Weight& table, Tensor ids, float scale) {
  CHECK(table.layout == Layout::packed && ids.rank == 1 && ids.dtype == Dtype::i32);
  const Tensor y = exec.arena.tensor(Dtype::f32, ids.dims[0], table.cols);
  tell_cost(exec, [&] {
    const auto bytes = static_cast<double>(packed_bytes(exec.queue.kind, table.format, table.rows, table.cols));
    return Cost{.bytes = bytes_of(y) + bytes_of(ids) + bytes / table.rows * ids.dims[0]};
  });
  kernels::embed(exec, y, table, ids, scale);
  return y;
}

void take_next_tokens(Exec& exec, Tensor ids, Tensor next) {
  CHECK(ids.rank == 1 && ids.dtype == Dtype::i32 && next.rank == 1 && next.dtype == Dtype::i32);
  tell_bytes(exec, ids, ids);
  kernels::take_next_tokens(exec, ids, next);
}

void set_entries(Exec& exec, Tensor table, Tensor places, Tensor values) {
  CHECK(table.rank == 1 && places.rank == 1 && values.rank == 1 && places.dims[0] == values.dims[0]);
  CHECK(table.dtype == Dtype::i32 && places.dtype == Dtype::i32 && values.dtype == Dtype::i32);
  tell_bytes(exec, places, values, values);
  kernels::set_entries(exec, table, places, values);
}

}  // namespace quern
