#include "ops/linear.h"

#include "ops/linear_cost.h"

namespace quern {
namespace {

PanelSize size_of_panel(DeviceKind device, FormatId format, int32_t cols) {
  PanelSize size;
  kernels::panel_size.find(device)(Queue{device, nullptr}, format, cols, size);
  return size;
}

}  // namespace

Tensor linear(Exec& exec, Tensor x, const Matrix& matrix) {
  const Tensor y = exec.arena.tensor(exec.activations, x.dims[0], matrix.rows);
  linear_into(exec, y, x, matrix, false);
  return y;
}

void linear_into(Exec& exec, Tensor y, Tensor x, const Matrix& matrix, bool accumulate) {
  CHECK(x.rank == 2 && x.dtype == exec.activations && x.dims[1] == matrix.cols && x.strides[1] == 1);
  CHECK(y.rank == 2 && y.dims[0] == x.dims[0] && y.dims[1] == matrix.rows && y.strides[1] == 1);
  CHECK(y.dtype == Dtype::f32 || (y.dtype == x.dtype && !accumulate));
  CHECK(!matrix.bias || matrix.bias.dims[0] == matrix.rows);
  CHECK(!matrix.scale || matrix.scale.dims[0] == matrix.rows);
  if (x.dims[0] == 0) return;
  const Arena::Scope scope(exec.arena);
  int64_t bytes = 0;
  kernels::linear_scratch.find(exec.queue.kind)(exec.queue, matrix, x.dims[0], bytes);
  std::byte* const scratch = exec.arena.take(bytes);
  tell_cost(exec, [&] { return cost_of_product(exec.queue.kind, y, x, matrix, accumulate); });
  kernels::linear(exec, y, x, matrix, accumulate, scratch);
}

int64_t packed_bytes(DeviceKind device, FormatId format, int32_t rows, int32_t cols) {
  const PanelSize size = size_of_panel(device, format, cols);
  return (int64_t{rows} + size.rows - 1) / size.rows * size.bytes;
}

int32_t panel_rows(DeviceKind device, FormatId format) { return size_of_panel(device, format, 256).rows; }

void pack_panels(DeviceKind device, std::byte* packed, const Weight& rows, int32_t first_row, int32_t total_rows) {
  const int32_t panel = panel_rows(device, rows.format);
  CHECK(rows.layout == Layout::rows && first_row % panel == 0);
  CHECK(first_row + rows.rows == total_rows || (first_row + rows.rows < total_rows && rows.rows % panel == 0));
  kernels::pack_panels.find(device)(Queue{device, nullptr}, packed, rows, first_row);
}

}  // namespace quern
