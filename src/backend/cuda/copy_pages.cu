#include "ops/copy_pages.h"

#include "backend/cuda/launch.h"

namespace quern::cuda {
namespace {

constexpr int threads = 256;
constexpr int64_t block_words = 16 * threads;  // 16-byte words that one block copies

/// Attention reads old pages before the kernels in front of it have ended: no kernel may begin while this one runs.
__global__ void __launch_bounds__(threads) copy(uint4* pool, int64_t page_words, const int* from, const int* to) {
  wait_for_previous();
  const uint4* source = pool + from[blockIdx.y] * page_words;
  uint4* target = pool + to[blockIdx.y] * page_words;
  const int64_t end = min(page_words, (blockIdx.x + 1) * block_words);
#pragma unroll 4
  for (int64_t i = blockIdx.x * block_words + threadIdx.x; i < end; i += threads) target[i] = source[i];
}

void copy_pages(Queue queue, std::byte* pool, int64_t page_bytes, Tensor from, Tensor to) {
  constexpr int64_t word = sizeof(uint4);
  CHECK(page_bytes % word == 0);
  const int64_t words = page_bytes / word;
  const dim3 grid(static_cast<unsigned>((words + block_words - 1) / block_words), static_cast<unsigned>(from.dims[0]));
  launch(queue, copy, grid, threads, 0, reinterpret_cast<uint4*>(pool), words, from.as<int32_t>(), to.as<int32_t>());
}

const bool added = kernels::copy_pages.add(DeviceKind::cuda, copy_pages);

}  // namespace
}  // namespace quern::cuda
