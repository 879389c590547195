// linear: the matrix products of a model, over weights in any format.
#pragma once

#include "formats/weight.h"
#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

/// A matrix made of up to three parts stacked by rows (q|k|v, gate|up), each in a format of its own.
struct Matrix {
  Weight parts[3];
  int32_t count = 0;
  int32_t rows = 0;  // of all parts
  int32_t cols = 0;
  Tensor bias;   // [rows] f32, or none
  Tensor scale;  // [rows] f32 that the products are multiplied with, or none
};

/// y = scale * (x W^T) + bias.   x: [tokens, cols] activations   y: [tokens, rows] activations
/// With a batch-invariant queue a token's result does not depend on the other tokens or on how many they are, bit by
/// bit.
Tensor linear(Exec& exec, Tensor x, const Matrix& matrix);
/// The same into memory of the caller, activations or f32: y = scale * (x W^T) + bias, or with `accumulate` y += that,
/// y f32 (a residual stream).
void linear_into(Exec& exec, Tensor y, Tensor x, const Matrix& matrix, bool accumulate);

/// Bytes of one part in the layout that the device's kernels read.
int64_t packed_bytes(DeviceKind device, FormatId format, int32_t rows, int32_t cols);
/// Rows per panel: rows are packed in panels of this many; the last panel is padded.
int32_t panel_rows(DeviceKind device, FormatId format);
/// Packs rows [first_row, first_row + count) (whole panels, or up to the end) of a weight in Layout::rows that holds
/// just these rows into `packed`, the memory of the whole part with `total_rows` rows. Any thread; panels are
/// independent.
void pack_panels(DeviceKind device, std::byte* packed, const Weight& rows, int32_t first_row, int32_t total_rows);

/// A panel of some format and number of columns.
struct PanelSize {
  int32_t rows = 0;
  int64_t bytes = 0;
};

namespace kernels {
inline constinit Kernel<void(Tensor y, Tensor x, const Matrix& matrix, bool accumulate, std::byte* scratch)> linear{
    "linear"};
/// How much scratch that takes.
inline constinit Kernel<void(const Matrix& matrix, int32_t tokens, int64_t& bytes)> linear_scratch{"linear_scratch"};
inline constinit Kernel<void(FormatId format, int32_t cols, PanelSize& size)> panel_size{"panel_size"};
inline constinit Kernel<void(std::byte* packed, const Weight& rows, int32_t first_row)> pack_panels{"pack_panels"};
}  // namespace kernels

}  // namespace quern
