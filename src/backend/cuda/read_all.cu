#include "ops/read_all.h"

#include "backend/cuda/launch.h"

namespace quern::cuda {
namespace {

constexpr int threads = 512;
constexpr int unrolled = 8;  // loads of 16 bytes that a thread has under way

/// Sums are added to memory by the threads in turn: integers, so that their order is of no account.
__global__ void __launch_bounds__(threads) read(const uint4* words, int64_t count, int32_t* sums, int parts) {
  allow_next();
  wait_for_previous();
  uint32_t sum = 0;
  const int64_t step = int64_t{gridDim.x} * threads;
  int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  for (; i + (unrolled - 1) * step < count; i += unrolled * step) {
    uint4 loaded[unrolled];
#pragma unroll
    for (int j = 0; j < unrolled; ++j) loaded[j] = __ldcs(words + i + j * step);
#pragma unroll
    for (int j = 0; j < unrolled; ++j) sum += loaded[j].x + loaded[j].y + loaded[j].z + loaded[j].w;
  }
  for (; i < count; i += step) sum += words[i].x + words[i].y + words[i].z + words[i].w;
  atomicAdd(sums + (blockIdx.x * threads + threadIdx.x) % parts, static_cast<int>(sum));
}

__global__ void clear(int32_t* sums, int parts) {
  allow_next();
  wait_for_previous();
  for (int i = threadIdx.x; i < parts; i += blockDim.x) sums[i] = 0;
}

void read_all(Queue queue, Tensor memory, Tensor sums) {
  const auto blocks = static_cast<unsigned>(4 * native(queue).multiprocessors);
  launch(queue, clear, 1, threads, 0, sums.as<int32_t>(), sums.dims[0]);
  launch(queue, read, blocks, threads, 0, reinterpret_cast<const uint4*>(memory.data), int64_t{memory.dims[0]} / 4,
         sums.as<int32_t>(), sums.dims[0]);
}

const bool added = kernels::read_all.add(DeviceKind::cuda, read_all);

}  // namespace
}  // namespace quern::cuda
