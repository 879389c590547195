#include "ops/select.h"

#include "backend/cuda/launch.h"
#include "backend/cuda/vectors.h"

namespace quern::cuda {
namespace {

constexpr int threads = 256;

/// `pieces` blocks for each row; sizes and strides in words.
template <typename Word>
__global__ void __launch_bounds__(threads)
    copy_rows(Word* y, int64_t y_stride, const Word* x, int64_t x_stride, const int* indices, int words, int pieces) {
  allow_next();
  const int64_t row = blockIdx.x / pieces;
  const int word = blockIdx.x % pieces * threads + threadIdx.x;
  wait_for_previous();
  if (word < words) y[row * y_stride + word] = x[indices[row] * x_stride + word];
}

template <typename Word>
void run(Queue queue, Tensor y, Tensor x, Tensor indices) {
  const int element = dtype_bytes(x.dtype);
  const int words = static_cast<int>(int64_t{x.dims[1]} * element / static_cast<int>(sizeof(Word)));
  const int pieces = (words + threads - 1) / threads;
  launch(queue, copy_rows<Word>, static_cast<unsigned>(y.dims[0] * pieces), threads, 0, reinterpret_cast<Word*>(y.data),
         y.strides[0] * element / static_cast<int64_t>(sizeof(Word)), reinterpret_cast<const Word*>(x.data),
         x.strides[0] * element / static_cast<int64_t>(sizeof(Word)), indices.as<int32_t>(), words, pieces);
}

void select_rows(Queue queue, Tensor y, Tensor x, Tensor indices) {
  const int64_t bytes = int64_t{x.dims[1]} * dtype_bytes(x.dtype);
  if (bytes % 16 == 0 && aligned_rows({y, x})) return run<uint4>(queue, y, x, indices);
  switch (dtype_bytes(x.dtype)) {
    case 4: return run<uint32_t>(queue, y, x, indices);
    case 2: return run<uint16_t>(queue, y, x, indices);
    default: return run<uint8_t>(queue, y, x, indices);
  }
}

const bool added = kernels::select_rows.add(DeviceKind::cuda, select_rows);

}  // namespace
}  // namespace quern::cuda
