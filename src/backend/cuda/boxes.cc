#include "backend/cuda/boxes.h"

#include <algorithm>
#include <cuda_runtime_api.h>

namespace quern::cuda {
namespace {

/// The driver's function, or null where it has none.
auto encoder() {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    const bool there = status == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return there ? reinterpret_cast<Encode>(function) : Encode{};
  }();
  return encode;
}

/// Of bytes; false if the driver cannot.
template <int dimensions>
bool encode(CUtensorMap& map, const std::byte* data, const cuuint64_t (&sizes)[dimensions],
            const cuuint64_t (&strides)[dimensions - 1], const cuuint32_t (&box)[dimensions]) {
  cuuint32_t steps[dimensions];
  std::fill_n(steps, dimensions, 1);
  return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, dimensions, const_cast<std::byte*>(data), sizes, strides, box,
                   steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

bool describes_boxes() { return encoder() != nullptr; }

bool describe_rows(CUtensorMap& map, const std::byte* data, int64_t row_bytes, int64_t stride, int32_t rows,
                   int box_bytes, int box_rows) {
  return encode<2>(map, data, {static_cast<cuuint64_t>(row_bytes), static_cast<cuuint64_t>(rows)},
                   {static_cast<cuuint64_t>(stride)},
                   {static_cast<cuuint32_t>(box_bytes), static_cast<cuuint32_t>(box_rows)});
}

bool describe_rows(CUtensorMap& map, const BoxedMatrices& matrices, int box_bytes, int box_rows) {
  return encode<3>(map, matrices.data,
                   {static_cast<cuuint64_t>(matrices.row_bytes), static_cast<cuuint64_t>(matrices.rows),
                    static_cast<cuuint64_t>(matrices.count)},
                   {static_cast<cuuint64_t>(matrices.row_bytes), static_cast<cuuint64_t>(matrices.step)},
                   {static_cast<cuuint32_t>(box_bytes), static_cast<cuuint32_t>(box_rows), 1});
}

bool describe_both(CUtensorMap& map, const BoxedMatrices& first, int64_t apart, int box_bytes, int box_rows) {
  constexpr int together = 8;
  const auto row = static_cast<cuuint64_t>(first.row_bytes);
  return encode<5>(
      map, first.data,
      {row, together, 2, static_cast<cuuint64_t>(first.rows / together), static_cast<cuuint64_t>(first.count)},
      {row, static_cast<cuuint64_t>(apart), row * together, static_cast<cuuint64_t>(first.step)},
      {static_cast<cuuint32_t>(box_bytes), together, 2, static_cast<cuuint32_t>(box_rows / 2 / together), 1});
}

bool describe_both(CUtensorMap& map, const std::byte* data, int64_t row_bytes, int32_t rows_each, int box_bytes,
                   int box_rows) {
  constexpr int together = 8;
  const auto row = static_cast<cuuint64_t>(row_bytes);
  const auto rows = static_cast<cuuint64_t>(rows_each);
  return encode<4>(map, data, {row, together, 2, rows / together}, {row, row * rows, row * together},
                   {static_cast<cuuint32_t>(box_bytes), together, 2, static_cast<cuuint32_t>(box_rows / 2 / together)});
}

}  // namespace quern::cuda
