// How a kernel is put into a queue, and how it begins and waits for what went before it.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>

#include "tensor/queue.h"

namespace quern::cuda {

class Blas;
struct Held;

/// What Queue::native is on a GPU.
struct CudaQueue {
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;
  Blas* blas = nullptr;            // the library for large products, or null where there is none
  std::byte* workspace = nullptr;  // of this queue's library calls
  int64_t workspace_bytes = 0;
  unsigned* arrivals = nullptr;  // max_arrivals counters of blocks that are done; zero between kernels
  Held* held = nullptr;          // what is launched with the next operation or before it: held.h
};
inline constexpr int max_arrivals = 1024;

inline const CudaQueue& native(const Queue& queue) { return *static_cast<const CudaQueue*>(queue.native); }

/// Ends in DeviceLost unless the status is success.
void check(cudaError_t status, const char* what);

/// Launches what is held; before anything else is put into the queue.
void launch_held(const Queue& queue);

template <typename T>
struct Same {
  using type = T;
};

/// Whether blocks of the current GPU can be neighbours in clusters.
inline bool has_clusters() {
  static const bool has = [] {
    int major = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    return major >= 9;
  }();
  return has;
}

/// How many blocks a kernel has, how large they are, and how many neighbours share their memory.
struct Blocks {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  unsigned cluster = 1;
};

/// Launches `kernel` so that it may start before the kernel in front of it has ended. It has to call
/// wait_for_previous() in every thread before it reads or writes what other kernels write or read.
template <typename... Params>
void launch_blocks(const Queue& queue, void (*kernel)(Params...), const Blocks& blocks,
                   typename Same<Params>::type... arguments) {
  if (blocks.grid.x == 0 || blocks.grid.y == 0 || blocks.grid.z == 0) return;
  launch_held(queue);
  cudaLaunchAttribute attributes[3] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  // Kernels that divide an SM's memory differently cannot be on it together.
  attributes[1].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  attributes[1].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  cudaLaunchConfig_t config{};
  attributes[2].id = cudaLaunchAttributeClusterDimension;
  attributes[2].val.clusterDim = {blocks.cluster, 1, 1};
  config.gridDim = blocks.grid;
  config.blockDim = blocks.block;
  config.dynamicSmemBytes = blocks.shared_bytes;
  config.stream = native(queue).stream;
  config.attrs = attributes;
  config.numAttrs = blocks.cluster > 1 ? 3 : 2;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), "launch");
}
template <typename... Params>
void launch(const Queue& queue, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
            typename Same<Params>::type... arguments) {
  launch_blocks(queue, kernel, {grid, block, shared_bytes}, arguments...);
}

/// Lets a kernel use more than 48 KB of dynamic shared memory; once per kernel, kept in a static of the caller.
template <typename Function>
bool allow_shared(Function* kernel, size_t bytes) {
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "shared memory of a kernel");
  return true;
}

#ifdef __CUDACC__
/// The next kernel may be brought onto the GPU from now on. Call it first of all.
__device__ __forceinline__ void allow_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Everything that earlier kernels wrote is there. Before it, only weights and other constants may be read.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
#endif

}  // namespace quern::cuda
