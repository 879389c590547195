// Work of one total cut into shares that differ by one at most.
#pragma once

#include <cstdint>

namespace quern::cuda {

#ifdef __CUDACC__
struct EvenShares {
  int64_t total = 0;
  int64_t quotient = 0;
  int blocks = 0;
  int remainder = 0;

  __device__ EvenShares(int64_t work, int number)
      : total(work), quotient(work / number), blocks(number), remainder(static_cast<int>(work - quotient * number)) {}
  EvenShares() = default;

  /// Where the share of a block begins.
  __device__ __forceinline__ int64_t begin(int block) const { return quotient * block + remainder * block / blocks; }
  /// The block in whose share `at` is.
  __device__ __forceinline__ int owner(int64_t at) const {
    int block = static_cast<int>(static_cast<float>(at) / static_cast<float>(total) * static_cast<float>(blocks));
    block = min(block, blocks - 1);
    while (begin(block) > at) --block;
    while (begin(block + 1) <= at) ++block;
    return block;
  }
};
#endif

}  // namespace quern::cuda
