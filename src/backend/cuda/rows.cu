#include "ops/rows.h"

#include "backend/cuda/launch.h"
#include "backend/cuda/packed.cuh"

namespace quern::cuda {
namespace {

constexpr int threads = 128;

/// Eight columns in each thread; one row of blocks for each token.
template <typename Format>
__global__ void __launch_bounds__(threads)
    read_rows(float* y, int64_t stride, const std::byte* data, int rows, int cols, const int32_t* ids, float scale) {
  allow_next();
  wait_for_previous();
  const int eighth = blockIdx.x * blockDim.x + threadIdx.x;
  if (eighth >= cols / 8) return;
  const int32_t id = ids[blockIdx.y];
  float* const to = y + blockIdx.y * stride + 8 * eighth;
  Eight values{};
  if (id >= 0 && id < rows) values = decode_packed<Format>(data, cols, id, eighth);
#pragma unroll
  for (int i = 0; i < 8; ++i) to[i] = scale * values.v[i];
}

void embed(Queue queue, Tensor y, const Weight& table, Tensor ids, float scale) {
  const dim3 grid(static_cast<unsigned>((table.cols / 8 + threads - 1) / threads), static_cast<unsigned>(ids.dims[0]));
  visit_format(table.format, [&]<typename Format>(Format) {
    launch(queue, read_rows<Format>, grid, threads, 0, y.as<float>(), y.strides[0], table.data, table.rows, table.cols,
           ids.as<int32_t>(), scale);
  });
}

__global__ void __launch_bounds__(threads) take_tokens(int32_t* ids, int count, const int32_t* next) {
  allow_next();
  wait_for_previous();
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t < count && ids[t] < 0) ids[t] = next[-1 - ids[t]];
}

void take_next_tokens(Queue queue, Tensor ids, Tensor next) {
  const auto blocks = static_cast<unsigned>((ids.dims[0] + threads - 1) / threads);
  launch(queue, take_tokens, blocks, threads, 0, ids.as<int32_t>(), ids.dims[0], next.as<int32_t>());
}

/// Attention reads page tables before the kernels in front of it have ended: no kernel may begin while this one runs.
__global__ void __launch_bounds__(threads)
    set(int32_t* table, const int32_t* places, const int32_t* values, int count) {
  wait_for_previous();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) table[places[i]] = values[i];
}

void set_entries(Queue queue, Tensor table, Tensor places, Tensor values) {
  const auto blocks = static_cast<unsigned>((places.dims[0] + threads - 1) / threads);
  launch(queue, set, blocks, threads, 0, table.as<int32_t>(), places.as<int32_t>(), values.as<int32_t>(),
         places.dims[0]);
}

const bool entries_added = kernels::set_entries.add(DeviceKind::cuda, set_entries);
const bool next_added = kernels::take_next_tokens.add(DeviceKind::cuda, take_next_tokens);
const bool added = kernels::embed.add(DeviceKind::cuda, embed);

}  // namespace
}  // namespace quern::cuda
